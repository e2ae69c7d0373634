"""Segmented LRU: new blocks are on probation; a hit promotes to the protected segment, whose overflow goes back.

A scan passes through probation and never touches what has proved itself. Blocks in use keep their place in either
segment; the first candidate of probation goes, then that of the protected segment.

Source: Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE Computer 1994.
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable

from cache.access import Access
from cache.evictor.queues import CandidateQueue, QueueEvictor


class Slru(QueueEvictor):
    """Two LRU queues."""

    def __init__(self, protected: float = 0.8) -> None:
        """`protected`: largest share of the pool the protected segment may hold."""
        if not 0 < protected < 1:
            raise ValueError(f"protected must lie between 0 and 1, got {protected}")
        super().__init__(2)
        self.probation, self.protected = self.queues
        self.share = protected

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.probation

    def touch(self, block: int, access: Access) -> None:
        self.enqueue(block, self.protected)
        if len(self.protected) > max(1, self.share * self.capacity):
            self.enqueue(next(iter(self.protected.blocks)), self.probation)

    def choose(self) -> int:
        block = self.probation.first_candidate()
        return block if block >= 0 else self.protected.first_candidate()
