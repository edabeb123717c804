"""How the embedded model learned to call tools: its dialogues, its training, and a check of what it learned."""
