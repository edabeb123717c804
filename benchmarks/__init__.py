"""What toolwire costs, beside hand-written floors and other frameworks, measured in one run: `python -m benchmarks`."""
