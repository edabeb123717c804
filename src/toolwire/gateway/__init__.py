"""The door for HTTP clients: chat APIs in front of any model, with calls that leaked into text made whole."""
