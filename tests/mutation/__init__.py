"""Mutation testing: change one thing in a function, and see whether a test notices. `make mutate` runs it.

`subjects` says which modules are mutated and which tests concern them, `mutants` makes the changes, `coverage` finds
the tests that reach a line, `trial` runs them against a mutant in a fork, and `tables` keeps what came of it.
"""
