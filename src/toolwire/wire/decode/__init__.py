"""Requests that clients of a chat API send, read into our nouns. Pure; a body is never trusted."""
