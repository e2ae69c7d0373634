"""The lab bench: every script that runs, measures and records. Nothing below imports this package."""
