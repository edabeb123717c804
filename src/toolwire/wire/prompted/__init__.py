"""Formats for models without tools of their own: the tools are described in the system text."""
