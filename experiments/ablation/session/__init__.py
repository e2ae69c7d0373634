"""A whole GPU session from one command, on a machine that has neither Hydra nor W&B."""
