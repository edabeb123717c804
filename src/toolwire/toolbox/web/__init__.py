"""Tools that fetch pages and search the web, and the text of a page."""
