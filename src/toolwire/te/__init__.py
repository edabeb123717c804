"""The door for shells: `te` runs the commands that everyone knows, and gives their output in a Tool Envelope.

It is apart from `toolwire.cli` because it is run many times a minute: it loads nothing that its command does not need.
"""
