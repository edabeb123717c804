"""Tools for git repositories, which are never trusted."""
