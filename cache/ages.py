"""How old blocks were when something happened to them, in requests and in seconds since they were last touched.

Only (now, last touch, blocks) is noted while requests run, a few numbers per run of blocks; ages come when asked for.

Knows nothing of what happened.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping


class Ages:
    """Blocks by age at one kind of event. Memory: 24 bytes per run of blocks."""

    def __init__(self, times: Mapping[int, float]) -> None:
        """`times`: seconds by request index; kept, not copied."""
        self._times = times
        self._noted = array("q")

    def add(self, now: int, last: int, count: int) -> None:
        """At request `now`, `count` blocks last touched by request `last`."""
        self._noted.extend((now, last, count))

    def __iter__(self) -> Iterator[tuple[int, float, int]]:
        """(age in requests, age in seconds, blocks) in the order of the events."""
        noted, times = self._noted, self._times
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
        return sum(self._noted[2::3])
