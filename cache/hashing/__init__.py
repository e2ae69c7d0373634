"""How a block's key is made from its parent's key and its own token ids; one algorithm per file."""
