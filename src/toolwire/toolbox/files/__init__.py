"""Tools that read, find, search and change files, and the paths and rules that they go by."""
