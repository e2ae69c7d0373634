"""Sweeps over several policies at once, on the simulator: which combination serves best, and is the difference real?"""
