"""From the words of a command line to a command, and from its answer or exception to an exit code."""
