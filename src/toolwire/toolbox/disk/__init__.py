"""The disk of this machine, and one in memory, as file tools see them: nothing outside a folder is reached."""
