"""Which format a model is spoken to in: the table of formats, the choice, and how well each works."""
