"""W-TinyLFU: a small LRU window in front of a segmented LRU, and a duel by frequency at the door between them.

The window's first candidate meets the one the main part would evict; a count-min sketch of recent accesses, halved
from time to time, says which was used more often. The loser goes, so one-time blocks rarely displace anything.

Source: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 2017.
O(log n) amortised per candidate, O(1) per touched block; remembers no keys, only counters.
"""

from __future__ import annotations

from collections.abc import Hashable

from cache.access import Access
from cache.evictor.queues import CandidateQueue, QueueEvictor

ROWS = 4
MOST = 15
SAMPLES_PER_BLOCK = 10


class CountMin:
    """Counts of keys up to 15, never too low but for halving; `counters` per row."""

    def __init__(self, counters: int) -> None:
        self._rows = [bytearray(counters) for _ in range(ROWS)]
        self._halve = bytes(count // 2 for count in range(256))

    def add(self, key: Hashable) -> None:
        """Count the key once more: only its smallest counters grow."""
        places = self._places(key)
        least = min(row[place] for row, place in zip(self._rows, places, strict=True))
        if least < MOST:
            for row, place in zip(self._rows, places, strict=True):
                if row[place] == least:
                    row[place] = least + 1

    def count(self, key: Hashable) -> int:
        """How often the key was counted, roughly."""
        return min(row[place] for row, place in zip(self._rows, self._places(key), strict=True))

    def halve(self) -> None:
        """Age all counters."""
        self._rows = [row.translate(self._halve) for row in self._rows]

    def _places(self, key: Hashable) -> tuple[int, int, int, int]:
        width, mixed = len(self._rows[0]), hash((key, "count-min"))
        return mixed % width, (mixed >> 16) % width, (mixed >> 32) % width, (mixed >> 48) % width


class WTinyLfu(QueueEvictor):
    """Window, probation, protected."""

    def __init__(self, window: float = 0.01, protected: float = 0.8, counters: int = 65536) -> None:
        """`window`: share of the pool; `protected`: share of the rest; `counters`: width of the sketch."""
        if not (0 < window < 1 and 0 < protected < 1 and counters > 0):
            raise ValueError(f"window {window} and protected {protected} must lie in (0, 1), counters {counters} above 0")
        super().__init__(3)
        self.window, self.probation, self.protected = self.queues
        self.window_share, self.protected_share = window, protected
        self.sketch = CountMin(counters)
        self._samples = 0

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        self._sample(key)
        return self.window

    def touch(self, block: int, access: Access) -> None:
        self._sample(self.keys[block])
        if self.place[block] is self.window:
            self.enqueue(block, self.window)
            return
        self.enqueue(block, self.protected)
        if len(self.protected) > max(1, self.protected_share * (1 - self.window_share) * self.capacity):
            self.enqueue(next(iter(self.protected.blocks)), self.probation)

    def choose(self) -> int:
        ours, main = self.window.first_candidate(), self.probation.first_candidate()
        if main < 0:
            main = self.protected.first_candidate()
        if ours < 0 or main < 0:
            return max(ours, main)
        if len(self.window) <= max(1, self.window_share * self.capacity):
            return main
        if self.sketch.count(self.keys[ours]) <= self.sketch.count(self.keys[main]):
            return ours
        self.enqueue(ours, self.probation)
        return main

    def _sample(self, key: Hashable) -> None:
        self.sketch.add(key)
        self._samples += 1
        if self._samples >= SAMPLES_PER_BLOCK * max(self.capacity, 64):
            self._samples //= 2
            self.sketch.halve()
