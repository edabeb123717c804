"""A tool-calling runtime for LLM agents: one tool call, any model, any machine."""
