"""Requests to providers: one module for each provider's API, and what they share."""
