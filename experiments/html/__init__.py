"""Pages that stand alone: one file, no remote asset, nothing from the data ever runs."""
