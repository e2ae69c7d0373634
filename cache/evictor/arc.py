"""ARC: one LRU list for blocks seen once, one for blocks seen again, and a boundary between them that learns.

A key that comes back after it left says which list was too short, and the boundary moves that way. Victims come from
the first candidate of the list above its share, else of the other. Room is made before the cache tells what the new
blocks are, so a returning key moves the boundary for the next victims, not for the one it cost itself.

Source: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003.
O(log n) per candidate, O(1) per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from collections.abc import Hashable

from cache.access import Access
from cache.evictor.ghosts import Ghosts
from cache.evictor.queues import CandidateQueue, QueueEvictor


class Arc(QueueEvictor):
    """T1 and T2 (resident), B1 and B2 (keys), and `target`, the size T1 should have."""

    def __init__(self) -> None:
        super().__init__(2)
        self.t1, self.t2 = self.queues
        self.b1: Ghosts[bool] = Ghosts()
        self.b2: Ghosts[bool] = Ghosts()
        self.target = 0.0

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        b1, b2 = len(self.b1), len(self.b2)
        if self.b1.recall(key):
            self.target = min(self.capacity, self.target + max(1.0, b2 / b1))
            return self.t2
        if self.b2.recall(key):
            self.target = max(0.0, self.target - max(1.0, b1 / b2))
            return self.t2
        return self.t1

    def touch(self, block: int, access: Access) -> None:
        self.enqueue(block, self.t2)

    def choose(self) -> int:
        order = (self.t1, self.t2) if len(self.t1) > self.target else (self.t2, self.t1)
        return next((block for queue in order if (block := queue.first_candidate()) >= 0), -1)

    def gone(self, block: int, key: Hashable) -> None:
        if self.place[block] is self.t1:
            self.b1.remember(key, True, self.capacity)
        else:
            self.b2.remember(key, True, self.capacity)
        self.b1.shrink(self.capacity - len(self.t1) + 1)  # the victim still stands in its list
        self.b2.shrink(self.capacity - len(self.b1))

    def num_ghosts(self) -> int:
        return len(self.b1) + len(self.b2)
