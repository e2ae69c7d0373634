"""A run to look at while it runs: counts, the screens that show them, and nothing where nobody looks."""
