"""Readers of the providers' own reply formats, whole and streamed: each puts what it finds into a Draft."""
