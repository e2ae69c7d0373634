"""W-TinyLFU: a small LRU window in front of a segmented LRU, and a duel by frequency at the door between them.

The window's first candidate meets the one the main part would evict; a count-min sketch of recent accesses, halved
from time to time, says which was used more often. The loser goes, so one-time blocks rarely displace anything.

Source: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 2017.
O(log n) amortised per candidate, O(1) per touched block; remembers no keys, only counters.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from cache.access import Access
from cache.evictor.queues import CandidateQueue, QueueEvictor

ROWS = 4
MOST = 15
SAMPLES_PER_BLOCK = 10
SPREAD = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: spreads neighbouring hashes over all bits."""
MASK = (1 << 64) - 1


class CountMin:
    """Counts of keys up to 15, never too low but for halving; `counters` per row."""

    def __init__(self, counters: int) -> None:
        self._width = counters
        self._rows = [bytearray(counters) for _ in range(ROWS)]
        self._halve = bytes(count // 2 for count in range(256))

    def add(self, keys: Iterable[Hashable]) -> None:
        """Count each of these keys once more: only its smallest counters grow."""
        one, two, three, four = self._rows
        width = self._width
        for key in keys:
            mixed = hash(key) * SPREAD & MASK
            a = mixed % width
            p = one[a]
            b = (mixed >> 11) % width
            q = two[b]
            c = (mixed >> 23) % width
            r = three[c]
            d = (mixed >> 37) % width
            s = four[d]
            least = p if p < q else q
            if r < least:
                least = r
            if s < least:
                least = s
            if least == MOST:
                continue
            more = least + 1
            if p == least:
                one[a] = more
            if q == least:
                two[b] = more
            if r == least:
                three[c] = more
            if s == least:
                four[d] = more

    def count(self, key: Hashable) -> int:
        """How often the key was counted, roughly."""
        one, two, three, four = self._rows
        width, mixed = self._width, hash(key) * SPREAD & MASK
        return min(
            one[mixed % width], two[(mixed >> 11) % width], three[(mixed >> 23) % width], four[(mixed >> 37) % width]
        )

    def halve(self) -> None:
        """Age all counters."""
        self._rows = [row.translate(self._halve) for row in self._rows]


class WTinyLfu(QueueEvictor):
    """Window, probation, protected."""

    def __init__(self, window: float = 0.01, protected: float = 0.8, counters: int = 65536) -> None:
        """`window`: share of the pool; `protected`: share of the rest; `counters`: width of the sketch."""
        if not (0 < window < 1 and 0 < protected < 1 and counters > 0):
            raise ValueError(
                f"window {window} and protected {protected} must lie in (0, 1), counters {counters} above 0"
            )
        super().__init__(3)
        self.window, self.probation, self.protected = self.queues
        self.window_share, self.protected_share = window, protected
        self.sketch = CountMin(counters)
        self._samples = 0
        self._filling = True

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.window

    def touch(self, block: int, access: Access) -> None:
        if self.place[block] is self.window:
            self.enqueue(block, self.window)
            return
        self.enqueue(block, self.protected)
        if len(self.protected) > max(1, self.protected_share * (1 - self.window_share) * self.capacity):
            self.enqueue(next(iter(self.protected.blocks)), self.probation)

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(blocks, depth, access, keys)
        self.sketch.add(reversed(keys))
        self._sampled(len(blocks))
        while self._filling and len(self.window) > max(1, self.window_share * self.capacity):
            self.enqueue(next(iter(self.window.blocks)), self.probation)  # nothing to duel for while there is room

    def choose(self) -> int:
        self._filling = False
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

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        super().accessed(blocks, depth, access)
        self.sketch.add(map(self.keys.__getitem__, reversed(blocks)))
        self._sampled(len(blocks))

    def _sampled(self, count: int) -> None:
        """Age the sketch once it holds ten counts per block of the pool."""
        self._samples += count
        if self._samples >= SAMPLES_PER_BLOCK * max(self.capacity, 64):
            self._samples //= 2
            self.sketch.halve()
