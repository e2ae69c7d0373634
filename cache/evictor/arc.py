"""ARC: one LRU list for blocks seen once, one for blocks seen again, and a boundary between them that learns.

A key that comes back after it left says which list was too short, and the boundary moves that way. Victims come from
the first candidate of the list above its share, else of the other. Room is made before the cache tells what the new
blocks are, so a returning key moves the boundary for the next victims, not for the one it cost itself.

Source: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003.
O(log n) per candidate, O(1) per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ghosts import Ghosts
from cache.evictor.pieces import Piece, PieceQueue
from cache.evictor.queued_runs import QueuedRuns
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.runs import RunPolicy
from cache.run import Run


class Arc(QueueEvictor):
    """T1 and T2 (resident), B1 and B2 (keys), and `target`, the size T1 should have."""

    def __init__(self) -> None:
        super().__init__(2)
        self.t1, self.t2 = self.queues
        self.b1: Ghosts[bool] = Ghosts()
        self.b2: Ghosts[bool] = Ghosts()
        self.target = 0.0

    def by_run(self) -> RunPolicy | None:
        return ArcRuns(self.b1, self.b2) if type(self) is Arc else None  # a subclass may queue otherwise

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        self.target, returns = learn(self.target, self.capacity, self.b1, self.b2, key)
        return self.t2 if returns else self.t1

    def touch(self, block: int, access: Access) -> None:
        self.enqueue(block, self.t2)

    def choose(self) -> int:
        order = (self.t1, self.t2) if len(self.t1) > self.target else (self.t2, self.t1)
        return next((block for queue in order if (block := queue.first_candidate()) >= 0), -1)

    def gone(self, block: int, key: Hashable) -> None:
        seen_once = self.place[block] is self.t1
        (self.b1 if seen_once else self.b2).remember(key, True, self.capacity)
        forget(self.capacity, len(self.t1) - seen_once, self.b1, self.b2)  # the victim still stands in its list

    def num_ghosts(self) -> int:
        return len(self.b1) + len(self.b2)


class ArcRuns(QueuedRuns):
    """The same over runs. Keys are looked at one by one only where one of a request's new blocks is a ghost."""

    needs_keys = True

    def __init__(self, b1: Ghosts[bool], b2: Ghosts[bool]) -> None:
        super().__init__(2)
        self.t1, self.t2 = self.queues
        self.b1, self.b2 = b1, b2
        self.target = 0.0

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue | list[PieceQueue]:
        if self.b1.knows_none_of(keys) and self.b2.knows_none_of(keys):
            return self.t1
        queues = []
        for key in reversed(keys):
            self.target, returns = learn(self.target, self.capacity, self.b1, self.b2, key)
            queues.append(self.t2 if returns else self.t1)
        queues.reverse()
        return queues

    def touch(self, run: Run, stamp: int) -> None:
        self.renew(run, self.t2, stamp)

    def choose(self, most: int) -> tuple[Run | None, int]:
        return self.first_above(int(self.target), self.t1, self.t2, most)

    def gone(self, piece: Piece, keys: Sequence[Hashable]) -> None:
        (self.b1 if piece.queue is self.t1 else self.b2).remember_all(keys, True, self.capacity)
        forget(self.capacity, len(self.t1), self.b1, self.b2)


def learn(target: float, capacity: int, b1: Ghosts[bool], b2: Ghosts[bool], key: Hashable) -> tuple[float, bool]:
    """The boundary once a new block's key is known, and whether it was a ghost, which it is no more."""
    num_b1, num_b2 = len(b1), len(b2)
    if b1.recall(key):
        return min(capacity, target + max(1.0, num_b2 / num_b1)), True
    if b2.recall(key):
        return max(0.0, target - max(1.0, num_b1 / num_b2)), True
    return target, False


def forget(capacity: int, num_once: int, b1: Ghosts[bool], b2: Ghosts[bool]) -> None:
    """T1 and B1 together remember at most one pool, B1 and B2 too."""
    b1.shrink(capacity - num_once)
    b2.shrink(capacity - len(b1))
