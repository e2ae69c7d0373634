"""Public traces: where they are, how they get here, what is made of them."""
