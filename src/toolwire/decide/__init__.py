"""May a call run? Pure: what is known arrives as arguments."""
