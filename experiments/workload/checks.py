"""Checks of constructor arguments, named as the command line names them.

Knows nothing of what the arguments are for.
"""

from __future__ import annotations


def check_at_least(least: float, **arguments: object) -> None:
    """Raises ValueError naming the constructor argument that is no number, below `least`, infinite or NaN.

    A whole number as `least` asks for whole numbers.
    """
    for name, value in arguments.items():
        kinds = int if isinstance(least, int) else int | float
        if not isinstance(value, kinds) or isinstance(value, bool):
            kind = "whole number" if isinstance(least, int) else "number"
            raise ValueError(f"workload.{name} must be a {kind} of {least} or more, got {value}")
        if not least <= value < float("inf"):
            raise ValueError(f"workload.{name} must be a finite number of {least} or more, got {value}")
