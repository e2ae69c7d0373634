"""S3-FIFO: a small FIFO sifts out what is used once; what was used there, or comes back soon, enters the main FIFO.

A hit only raises a counter (up to 3). The small queue's first candidate moves to the main queue if it was hit twice,
else it goes and its key is remembered; the main queue gives its first candidate another round per hit.

Source: Yang, Zhang, Qiu, Yue, Vigfusson, "FIFO queues are all you need for cache eviction", SOSP 2023.
O(log n) amortised per candidate, O(1) per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil

from cache.access import Access
from cache.evictor.ghosts import Ghosts
from cache.evictor.pieces import Piece, PieceQueue
from cache.evictor.queued_runs import Entrance, QueuedRuns
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.runs import RunPolicy
from cache.run import Run

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

    def by_run(self) -> RunPolicy | None:
        return S3FifoRuns(self.share, self.ghosts) if type(self) is S3Fifo else None  # a subclass may queue otherwise

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


class S3FifoRuns(QueuedRuns):
    """The same over runs. `mark`: the hits of a piece; only tails of candidates move on, one block at a time."""

    needs_keys = True

    def __init__(self, small: float, ghosts: Ghosts[bool]) -> None:
        super().__init__(2)
        self.small, self.main = self.queues
        self.share = small
        self.ghosts = ghosts

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue | list[Entrance]:
        if self.ghosts.knows_none_of(keys):
            return self.small
        return [(stop, self.main if known else self.small) for stop, known in self.ghosts.recall_all(keys)]

    def touch(self, run: Run, stamp: int) -> None:
        for piece in run.rank:
            if piece.mark < MOST_HITS:
                piece.mark += 1

    def choose(self, most: int) -> tuple[Run | None, int]:
        share = ceil(self.share * self.capacity)
        while True:
            run, going = self.first_above(share - 1, self.small, self.main, most)
            if run is None:
                return None, 0
            piece: Piece = run.rank[-1]
            probation = piece.queue is self.small
            if piece.mark <= (1 if probation else 0):
                return run, going
            piece = self.cut_last(piece)
            piece.mark = 0 if probation else piece.mark - 1
            self.move(piece, self.main, self.tick())

    def gone(self, piece: Piece, keys: Sequence[Hashable]) -> None:
        if piece.queue is self.small:
            self.ghosts.remember_all(keys, True, self.capacity)
