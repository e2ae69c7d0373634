"""Garbage is collected seldom while a run is measured: what it makes lives long, and looking through it costs time.

Memory that only cycles hold (a finished request and its branches) comes back later, not never.

Knows nothing of what runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = (50_000, 20, 50)
"""Objects made between two collections of the youngest; how many of those to one of the next age."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """What is there already (modules, the workload) is not looked through at all, what comes new seldom."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
