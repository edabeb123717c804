"""Calls, reasoning and content written into plain text, in any of the formats that models use."""
