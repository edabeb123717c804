"""The same work done by other frameworks, each with a model of its own kind that answers at once."""
