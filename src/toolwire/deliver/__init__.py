"""What the model and the user see of a result. Pure."""
