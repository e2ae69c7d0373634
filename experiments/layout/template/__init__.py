"""What the chat template itself writes in front of the instructions: one habit, one file."""
