"""Victim policies: who gives up its blocks when there are too few, one file each."""
