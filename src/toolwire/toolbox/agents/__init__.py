"""Tools that delegate to other agents and other models."""
