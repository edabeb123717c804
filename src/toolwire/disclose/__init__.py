"""What a turn may see. Pure."""
