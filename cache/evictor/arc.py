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
from cache.evictor.queued_runs import Entrance, QueuedRuns
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
        num_b1, num_b2 = len(self.b1), len(self.b2)
        returns_to_b1 = bool(self.b1.recall(key))
        if not returns_to_b1 and not self.b2.recall(key):
            return self.t1
        self.target = learn(self.target, self.capacity, num_b1, num_b2, returns_to_b1)
        return self.t2

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
    """The same over runs."""

    needs_keys = True

    def __init__(self, b1: Ghosts[bool], b2: Ghosts[bool]) -> None:
        super().__init__(2)
        self.t1, self.t2 = self.queues
        self.b1, self.b2 = b1, b2
        self.target = 0.0

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue | list[Entrance]:
        if self.b1.knows_none_of(keys) and self.b2.knows_none_of(keys):
            return self.t1
        num_b1, num_b2 = len(self.b1), len(self.b2)
        once, twice = self.b1.recall_all(keys), self.b2.recall_all(keys)
        entrances: list[Entrance] = []
        stop = len(keys)
        while stop:  # the deepest first
            in_b1, in_b2 = once[-1][1], twice[-1][1]
            start = max(stretches[-2][0] if len(stretches) > 1 else 0 for stretches in (once, twice))
            if in_b1 or in_b2:
                self.target = learn(self.target, self.capacity, num_b1, num_b2, bool(in_b1), stop - start)
                num_b1, num_b2 = (num_b1 - stop + start, num_b2) if in_b1 else (num_b1, num_b2 - stop + start)
            entrances.append((stop, self.t2 if in_b1 or in_b2 else self.t1))
            for stretches in (once, twice):
                if len(stretches) > 1 and stretches[-2][0] == start:
                    stretches.pop()
            stop = start
        entrances.reverse()
        return entrances

    def touch(self, run: Run, stamp: int) -> None:
        self.renew(run, self.t2, stamp)

    def choose(self, most: int) -> tuple[Run | None, int]:
        return self.first_above(int(self.target), self.t1, self.t2, most)

    def gone(self, piece: Piece, keys: Sequence[Hashable]) -> None:
        (self.b1 if piece.queue is self.t1 else self.b2).remember_all(keys, True, self.capacity)
        forget(self.capacity, len(self.t1), self.b1, self.b2)


def learn(target: float, capacity: int, b1: int, b2: int, returns_to_b1: bool, count: int = 1) -> float:
    """The boundary once `count` ghosts of one list have returned, one after the other; the lists held `b1` and `b2`."""
    if returns_to_b1:
        for held in range(b1, b1 - count, -1):
            target += b2 / held if b2 > held else 1.0
            if target >= capacity:
                return capacity
    else:
        for held in range(b2, b2 - count, -1):
            target -= b1 / held if b1 > held else 1.0
            if target <= 0:
                return 0.0
    return target


def forget(capacity: int, num_once: int, b1: Ghosts[bool], b2: Ghosts[bool]) -> None:
    """T1 and B1 together remember at most one pool, B1 and B2 too."""
    b1.shrink(capacity - num_once)
    b2.shrink(capacity - len(b1))
