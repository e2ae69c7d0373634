"""S3-FIFO: a small FIFO sifts out what is used once; what was used there, or comes back soon after, enters the main FIFO.

A hit only raises a counter (up to 3). The small queue's first candidate moves to the main queue if it was hit twice,
else it goes and its key is remembered; the main queue gives its first candidate another round per hit.

Source: Yang, Zhang, Qiu, Yue, Vigfusson, "FIFO queues are all you need for cache eviction", SOSP 2023.
O(log n) amortised per candidate, O(1) per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from collections.abc import Hashable

from cache.access import Access
from cache.evictor.ghosts import Ghosts
from cache.evictor.queues import CandidateQueue, QueueEvictor

MOST_HITS = 3


class S3Fifo(QueueEvictor):
    """Small, main and ghost queue."""

    def __init__(self, small: float = 0.1) -> None:
        """`small`: share of the pool the small queue should hold."""
        if not 0 < small < 1:
            raise ValueError(f"small must lie between 0 and 1, got {small}")
        super().__init__(2)
        self.small, self.main = self.queues
        self.share = small
        self.hits: dict[int, int] = {}
        self.ghosts: Ghosts[bool] = Ghosts()

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.main if self.ghosts.recall(key) else self.small

    def touch(self, block: int, access: Access) -> None:
        self.hits[block] = min(self.hits.get(block, 0) + 1, MOST_HITS)

    def choose(self) -> int:
        while True:
            small, main = self.small.first_candidate(), self.main.first_candidate()
            if small >= 0 and (main < 0 or len(self.small) >= self.share * self.capacity):
                if self.hits.get(small, 0) <= 1:
                    return small
                self.hits[small] = 0
                self.enqueue(small, self.main)
            elif main < 0 or not self.hits.get(main):
                return main
            else:
                self.hits[main] -= 1
                self.enqueue(main, self.main)

    def gone(self, block: int, key: Hashable) -> None:
        if self.place[block] is self.small:
            self.ghosts.remember(key, True, self.capacity)

    def removed(self, block: int) -> None:
        super().removed(block)
        self.hits.pop(block, None)

    def num_ghosts(self) -> int:
        return len(self.ghosts)
