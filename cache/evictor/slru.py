"""Segmented LRU: new blocks are on probation; a hit promotes to the protected segment, whose overflow goes back.

A scan passes through probation and never touches what has proved itself. Blocks in use keep their place in either
segment; the first candidate of probation goes, then that of the protected segment.

Source: Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE Computer 1994.
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.pieces import PieceQueue
from cache.evictor.queued_runs import QueuedRuns
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.runs import RunPolicy
from cache.run import Run


class Slru(QueueEvictor):
    """Two LRU queues."""

    adapts = False  # the protected segment only gives way to hits in probation, which a small probation never sees

    def __init__(self, protected: float = 0.8) -> None:
        """`protected`: largest share of the pool the protected segment may hold."""
        if not 0 < protected < 1:
            raise ValueError(f"protected must lie between 0 and 1, got {protected}")
        super().__init__(2)
        self.probation, self.protected = self.queues
        self.share = protected

    def by_run(self) -> RunPolicy | None:
        return SlruRuns(self.share) if type(self) is Slru else None  # a subclass may queue otherwise

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.probation

    def touch(self, block: int, access: Access) -> None:
        self.enqueue(block, self.protected)
        if len(self.protected) > max(1, self.share * self.capacity):
            self.enqueue(next(iter(self.protected.blocks)), self.probation)

    def choose(self) -> int:
        block = self.probation.first_candidate()
        return block if block >= 0 else self.protected.first_candidate()


class SlruRuns(QueuedRuns):
    """The same over runs. What overflows does so once the whole request has moved, which leaves the same order."""

    def __init__(self, protected: float) -> None:
        super().__init__(2)
        self.probation, self.protected = self.queues
        self.share = protected

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue:
        return self.probation

    def touch(self, run: Run, stamp: int) -> None:
        self.renew(run, self.protected, stamp)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        super().accessed(runs, access)
        self.spill(self.protected, int(max(1, self.share * self.capacity)), self.probation)

    def choose(self, most: int) -> tuple[Run | None, int]:
        return self.first_above(0, self.probation, self.protected, most)
