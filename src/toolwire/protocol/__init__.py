"""The nouns of the journey of a call. Frozen values, standard library only."""
