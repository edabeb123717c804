"""Mutation testing: change one thing in a function, and see whether a test notices. `make mutate` runs it."""
