"""Skills of a folder as tools: read, chosen, run and tried."""
