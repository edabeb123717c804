"""Records that agents and people share: notes, definitions, configurations, schedules, requests to other agents.

`rules/` has what holds for them and touches nothing: selectors, views for models, schemas, lifetimes, schedules. The
modules here keep them, find them and act on them. They are kept by `record/`, in the same store as everything else.
"""
