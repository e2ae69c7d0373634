"""2Q: a block first passes a short FIFO; only one asked for again *after* it left there earns a place in the main LRU.

Hits inside the FIFO count for nothing (they are correlated); keys that left it are remembered for a while. The FIFO is
the source of victims while it is above its share, the LRU otherwise; where the one has no candidate, the other gives.

Source: Johnson and Shasha, "2Q: a low overhead high performance buffer management replacement algorithm", VLDB 1994.
O(log n) per candidate, O(1) per touched block; ghosts: `remembered` x pool.
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


class TwoQ(QueueEvictor):
    """The full version: A1in (FIFO), A1out (keys), Am (LRU)."""

    def __init__(self, fifo: float = 0.25, remembered: float = 0.5) -> None:
        """`fifo`, `remembered`: sizes of A1in and A1out as shares of the pool."""
        if not (0 < fifo < 1 and 0 < remembered <= 2):
            raise ValueError(f"fifo must lie in (0, 1) and remembered in (0, 2], got {fifo} and {remembered}")
        super().__init__(2)
        self.a1in, self.am = self.queues
        self.a1out: Ghosts[bool] = Ghosts()
        self.fifo, self.remembered = fifo, remembered

    def by_run(self) -> RunPolicy | None:
        plain = type(self) is TwoQ  # a subclass may queue otherwise
        return TwoQRuns(self.fifo, self.remembered, self.a1out) if plain else None

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.am if self.a1out.recall(key) else self.a1in

    def touch(self, block: int, access: Access) -> None:
        if self.place[block] is self.am:
            self.enqueue(block, self.am)

    def choose(self) -> int:
        order = (self.a1in, self.am) if len(self.a1in) > self.fifo * self.capacity else (self.am, self.a1in)
        return next((block for queue in order if (block := queue.first_candidate()) >= 0), -1)

    def gone(self, block: int, key: Hashable) -> None:
        if self.place[block] is self.a1in:
            self.a1out.remember(key, True, int(self.remembered * self.capacity))

    def num_ghosts(self) -> int:
        return len(self.a1out)


class TwoQRuns(QueuedRuns):
    """The same over runs: of a run that was hit, the pieces in Am become as few and as young as they can."""

    needs_keys = True

    def __init__(self, fifo: float, remembered: float, a1out: Ghosts[bool]) -> None:
        super().__init__(2)
        self.a1in, self.am = self.queues
        self._in_am = {self.am: self.am}
        self.a1out = a1out
        self.fifo, self.remembered = fifo, remembered

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue | list[Entrance]:
        if self.a1out.knows_none_of(keys):
            return self.a1in
        return [(stop, self.am if known else self.a1in) for stop, known in self.a1out.recall_all(keys)]

    def touch(self, run: Run, stamp: int) -> None:
        self.renew_by(self._in_am, run, stamp)

    def choose(self, most: int) -> tuple[Run | None, int]:
        return self.first_above(int(self.fifo * self.capacity), self.a1in, self.am, most)

    def gone(self, piece: Piece, keys: Sequence[Hashable]) -> None:
        if piece.queue is self.a1in:
            self.a1out.remember_all(keys, True, int(self.remembered * self.capacity))
