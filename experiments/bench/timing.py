"""Time of the process on the processor, best of several: what the clock on the wall adds belongs to other people.

Knows nothing of what is timed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time
from typing import Any

Prepared = Callable[[], Callable[[], Any]]
"""Makes a run ready and returns it; only what it returns is timed."""


def best(prepare: Prepared, repeats: int) -> float:
    """Processor seconds of the fastest of several runs, garbage collection off."""
    return min(timed(prepare()) for _ in range(repeats))


def timed(run: Callable[[], Any]) -> float:
    """Processor seconds of one run, garbage collection off."""
    gc.collect()
    gc.disable()
    try:
        start = process_time()
        run()
        return process_time() - start
    finally:
        gc.enable()


def per_call(call: Callable[[], Any], repeats: int = 7, calls: int = 20) -> float:
    """Processor seconds per call, best of several rounds."""

    def rounds() -> None:
        for _ in range(calls):
            call()

    return best(lambda: rounds, repeats) / calls
