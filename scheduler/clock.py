"""What time it is: on the wall, or in a simulation. Seconds from an origin of its own.

Knows nothing of what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, sleep
from typing import Protocol


class Clock(Protocol):
    """Never goes backwards."""

    def now(self) -> float:
        """Seconds."""

    def wait_until(self, time: float) -> None:
        """Return once it is `time`; at once where that is past."""


class WallClock:
    """Real seconds since it was made, or what `timer` counts instead (`time.process_time`: work, not waiting)."""

    def __init__(self, timer: Callable[[], float] = perf_counter) -> None:
        self._timer = timer
        self._start = timer()

    def now(self) -> float:
        """Seconds since it was made."""
        return self._timer() - self._start

    def wait_until(self, time: float) -> None:
        """Sleep."""
        left = time - self.now()
        if left > 0:
            sleep(left)


class SimulatedClock:
    """Stands still until somebody moves it."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds moved so far."""
        return self._now

    def wait_until(self, time: float) -> None:
        """Jump there."""
        self._now = max(self._now, time)

    def advance(self, seconds: float) -> None:
        """So much work was done."""
        self._now += seconds
