"""Which cached block goes when room is needed: one policy per file, named as in its paper."""
