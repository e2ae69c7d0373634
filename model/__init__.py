"""Model-side rooms: today the tokenizer and its chat template."""
