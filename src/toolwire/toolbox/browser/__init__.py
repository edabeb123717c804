"""The tool `browser`, and Chromium behind it."""
