"""Where a call runs. Adapters behind one contract: `Executor.execute`."""
