"""W-TinyLFU: a small LRU window in front of a segmented LRU, and a duel by frequency at the door between them.

The window's first candidate meets the one the main part would evict; the one used less often goes, so one-time blocks
rarely displace anything. Resident blocks carry their counts; those of what has left are in a sketch (`count_min.py`),
where a block that returns finds its own. All are halved once ten uses per block of the pool have been counted, and a
row of the sketch has two counters for each of these.

A request moves at once: first all it touches goes where it belongs, then what overflows there goes on. While the pool
fills up there is nothing to duel for, and what leaves the window enters the main part.

Source: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 2017.
O(log n) amortised per candidate, O(1) per touched block; remembers no keys, only counters.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from itertools import compress, islice
from itertools import count as count_from
from operator import ne

from cache.access import Access
from cache.evictor.count_min import CountMin
from cache.evictor.pieces import Piece, PieceQueue
from cache.evictor.queued_runs import QueuedRuns
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run

MOST = 15
"""Uses that are counted; more is as good."""
USES_PER_BLOCK, FEWEST_BLOCKS = 10, 64


class WTinyLfu(QueueEvictor):
    """Window, probation, protected."""

    def __init__(self, window: float = 0.01, protected: float = 0.8, counters: int = 131072) -> None:
        """`window`: share of the pool; `protected`: share of the rest; `counters`: least width of the sketch."""
        if not (0 < window < 1 and 0 < protected < 1 and counters > 0):
            raise ValueError(
                f"window {window} and protected {protected} must lie in (0, 1), counters {counters} above 0"
            )
        super().__init__(3)
        self.window, self.probation, self.protected = self.queues
        self.window_share, self.protected_share = window, protected * (1 - window)
        self.counts: dict[int, int] = {}
        self.counters, self.sketch = counters, CountMin(1)  # nothing has left while the pool fills up
        self._uses = 0
        self._filling = True

    def by_run(self) -> RunPolicy | None:
        plain = type(self) is WTinyLfu  # a subclass may queue otherwise
        return WTinyLfuRuns(self.window_share, self.protected_share, self.counters) if plain else None

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(blocks, depth, access, keys)
        self.counts.update(zip(blocks, map(once_more, self.sketch.read(keys)), strict=True))
        while self._filling and len(self.window) > most(self.window_share, self.capacity):
            self.enqueue(next(iter(self.window.blocks)), self.probation)
        self._uses += len(blocks)
        self._age()

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        super().accessed(blocks, depth, access)
        while len(self.protected) > most(self.protected_share, self.capacity):
            self.enqueue(next(iter(self.protected.blocks)), self.probation)
        self._uses += len(blocks)
        self._age()

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.window

    def touch(self, block: int, access: Access) -> None:
        self.counts[block] = once_more(self.counts[block])
        self.enqueue(block, self.window if self.place[block] is self.window else self.protected)

    def choose(self) -> int:
        if self._filling:
            self._filling, self.sketch = False, CountMin(width(self.counters, self.capacity))
        ours, main = self.window.first_candidate(), self.probation.first_candidate()
        if main < 0:
            main = self.protected.first_candidate()
        if ours < 0 or main < 0:
            return max(ours, main)
        if len(self.window) <= most(self.window_share, self.capacity):
            return main
        if self.counts[ours] <= self.counts[main]:
            return ours
        self.enqueue(ours, self.probation)
        return main

    def gone(self, block: int, key: Hashable) -> None:
        self.sketch.write([key], self.counts[block])

    def removed(self, block: int) -> None:
        super().removed(block)
        self.counts.pop(block, None)

    def _age(self) -> None:
        if self._uses >= USES_PER_BLOCK * max(self.capacity, FEWEST_BLOCKS):
            self._uses //= 2
            self.sketch.halve()
            self.counts = {block: count // 2 for block, count in self.counts.items()}


class WTinyLfuRuns(QueuedRuns):
    """The same over runs; the mark of a piece is how often each of its blocks was used."""

    needs_keys = True

    def __init__(self, window: float, protected: float, counters: int) -> None:
        super().__init__(3)
        self.window, self.probation, self.protected = self.queues
        self.window_share, self.protected_share = window, protected
        self.counters, self.sketch = counters, CountMin(1)  # nothing has left while the pool fills up
        self._uses = 0
        self._filling = True

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(runs, access, keys)
        before = self.sketch.read(keys)
        if any(before):
            self._mark_each(runs, before)
        else:
            for run in runs:
                run.rank[0].mark = 1
        if self._filling:
            self.spill(self.window, most(self.window_share, self.capacity), self.probation)
        self._uses += len(keys)
        self._age()

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        super().accessed(runs, access)
        self.spill(self.protected, most(self.protected_share, self.capacity), self.probation)
        for run in runs:
            self._uses += len(run.blocks)
        self._age()

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue:
        return self.window

    def touch(self, run: Run, stamp: int) -> None:
        kept: list[Piece] = []
        for piece in reversed(run.rank):
            old, count = piece.queue, once_more(piece.mark)
            queue = old if old is self.window else self.protected
            old.unlink(piece)
            if kept and kept[-1].queue is queue and kept[-1].mark == count:
                kept[-1].start = piece.start
                queue.size += len(piece)
                continue
            piece.queue, piece.stamp, piece.mark = queue, stamp, count
            queue.append(piece)
            kept.append(piece)
        kept.reverse()
        run.rank = kept

    def victims(self, count: int, trim: Trim) -> None:
        if self._filling:
            self._filling, self.sketch = False, CountMin(width(self.counters, self.capacity))
        super().victims(count, trim)

    def choose(self, most_going: int) -> tuple[Run | None, int]:
        ours = self.window.first_candidate()
        main = self.probation.first_candidate() or self.protected.first_candidate()
        over = len(self.window) - most(self.window_share, self.capacity)
        if ours is None or main is None or over <= 0:
            run = main or ours
            return run, min(most_going, len(run.rank[-1])) if run else 0
        piece: Piece = ours.rank[-1]
        if piece.mark <= main.rank[-1].mark:
            return ours, min(most_going, len(piece), over)
        self.move(self.cut_last(piece), self.probation, self.tick())
        return main, 1

    def gone(self, piece: Piece, keys: Sequence[Hashable]) -> None:
        self.sketch.write(keys, piece.mark)

    def _mark_each(self, runs: Sequence[Run], before: Sequence[int]) -> None:
        """Cut the only pieces of new runs where the counts of their blocks, `before` this use, change."""
        first = runs[0].depth
        edges = list(compress(count_from(1), map(ne, before, islice(before, 1, None))))
        for run in runs:
            piece: Piece = run.rank[0]
            start = bisect_right(edges, piece.start - first)
            for edge in edges[start : bisect_left(edges, piece.stop - first, start)]:
                piece.mark = once_more(before[edge - 1])
                piece = self.cut(piece, first + edge)
            piece.mark = once_more(before[piece.start - first])

    def _age(self) -> None:
        if self._uses >= USES_PER_BLOCK * max(self.capacity, FEWEST_BLOCKS):
            self._uses //= 2
            self.sketch.halve()
            for queue in self.queues:
                for piece in queue:
                    piece.mark //= 2


def most(share: float, capacity: int) -> int:
    """Blocks that a part of the pool may hold; at least one."""
    return max(1, int(share * capacity))


def width(counters: int, capacity: int) -> int:
    """Of the sketch, once it is known how large the pool is."""
    return max(counters, 2 * USES_PER_BLOCK * capacity)


def once_more(count: int) -> int:
    """A count after one more use."""
    return min(count + 1, MOST)
