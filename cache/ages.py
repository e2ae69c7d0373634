"""How old blocks were when something happened to them, in requests and in seconds since they were last touched.

Only (now, last touch, blocks) is noted while requests run, a few numbers per run of blocks; ages come when asked for.

Knows nothing of what happened.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

MOST_RECENT = 3 * 4096


class Ages:
    """Blocks by age at one kind of event. Memory: 24 bytes per run of blocks."""

    def __init__(self, times: Mapping[int, float]) -> None:
        """`times`: seconds by request index; kept, not copied."""
        self._times = times
        self._noted = array("q")
        self._recent: list[int] = []
        """Not yet packed: growing a list is cheaper than growing an array, and packing many at once costs little."""

    def add(self, now: int, last: int, count: int) -> None:
        """At request `now`, `count` blocks last touched by request `last`."""
        recent = self._recent
        recent += (now, last, count)
        if len(recent) >= MOST_RECENT:
            self._pack()

    def add_all(self, now: int, runs: Iterable[tuple[int, int]]) -> None:
        """At request `now`, runs of blocks: (request that touched them last, how many)."""
        recent = self._recent
        for last, count in runs:
            recent += (now, last, count)
        if len(recent) >= MOST_RECENT:
            self._pack()

    def __iter__(self) -> Iterator[tuple[int, float, int]]:
        """(age in requests, age in seconds, blocks) in the order of the events."""
        noted, times = self._pack(), self._times
        for i in range(0, len(noted), 3):
            now, last, count = noted[i : i + 3]
            yield now - last, times[now] - times[last], count

    def requests(self) -> Counter[int]:
        """Blocks by age in requests."""
        ages: Counter[int] = Counter()
        for age, _, count in self:
            ages[age] += count
        return ages

    def total(self) -> int:
        """Blocks in all."""
        return sum(self._pack()[2::3])

    def _pack(self) -> array[int]:
        self._noted.extend(self._recent)
        self._recent.clear()
        return self._noted
