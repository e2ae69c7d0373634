"""How earlier turns come back in a later prompt: one habit, one file."""
