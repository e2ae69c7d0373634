"""Why prompts stop sharing: what agrees, where it parts, which fields change, and what fixing each would give."""
