"""What the words of a command line stand for: a project, a turn, a tool, an agent with the flags that made it."""
