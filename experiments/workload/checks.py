"""Checks of constructor arguments, named as the command line names them.

Knows nothing of what the arguments are for.
"""

from __future__ import annotations


def check_at_least(least: float, **arguments: float) -> None:
    """Raises ValueError naming the constructor argument that is below `least`, infinite or NaN."""
    for name, value in arguments.items():
        if not least <= value < float("inf"):
            raise ValueError(f"workload.{name} must be a finite number of {least} or more, got {value}")
