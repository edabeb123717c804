"""The arithmetic behind the tool `calculator`."""
