"""Commands confined by the kernel: engines behind one contract, and the one rule that chooses among them."""
