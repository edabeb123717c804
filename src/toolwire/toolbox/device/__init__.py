"""Tools about the machine that they run on: its sensors, its pins, its processes, what it reaches."""
