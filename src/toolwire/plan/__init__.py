"""In what order calls run. Pure."""
