"""Figures that can go into a paper: one for a run, three for a sweep."""
