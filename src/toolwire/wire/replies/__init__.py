"""Replies of models, whole or streamed, as calls that the runtime can judge."""
