"""The wheel: what a turn needs next, where it stops, and the runner that turns it."""
