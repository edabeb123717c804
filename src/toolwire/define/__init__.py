"""Anything becomes a tool here, and arguments are checked against what it asks for. Pure: no I/O, no clock."""
