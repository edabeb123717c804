"""Tools for working with the user: a plan, a question, a page that the user sees."""
