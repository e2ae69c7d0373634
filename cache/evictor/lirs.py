"""LIRS: keep blocks by the distance between their last two uses, not by the age of the last one.

Blocks of short reuse distance are LIR and own most of the pool; the others (HIR) pass through a short queue. The
paper's stack orders keys by last use, goes on for HIR keys that have left, and always ends in a LIR key: a HIR key
found in it has been reused sooner than the last LIR one, so they change places. The queue's first candidate goes; where
it has none, the LIR block used longest ago that may go.

Whether a key is in the stack follows from when it was last used: after the LIR block used longest ago (`bottom`). So
the event of the last use is kept, and no stack. What a request touches moves at once; LIR blocks that are too many by
then go to the queue. Until the first eviction all blocks are LIR; a LIR block that had to go leaves its room to the
next one that returns in time.

Source: Jiang and Zhang, "LIRS: an efficient low inter-reference recency set replacement policy", SIGMETRICS 2002.
O(log n) per candidate, O(1) amortised per touched block; ghosts: at most one pool.
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


class Lirs(QueueEvictor):
    """`last[block]`: the event of its last use, which a ghost remembers."""

    def __init__(self, hir: float = 0.05) -> None:
        """`hir`: share of the pool left to blocks of long reuse distance."""
        if not 0 < hir < 1:
            raise ValueError(f"hir must lie between 0 and 1, got {hir}")
        super().__init__(2)
        self.lir, self.hir = self.queues
        self.share = hir
        self.last: dict[int, int] = {}
        self.ghosts: Ghosts[int] = Ghosts()
        self.bottom = self._event = 0
        self._filling = True

    def by_run(self) -> RunPolicy | None:
        return LirsRuns(self.share, self.ghosts) if type(self) is Lirs else None  # a subclass may queue otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self._shrink()
        super().inserted(blocks, depth, access, keys)
        self._used(blocks)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        self._shrink()
        super().accessed(blocks, depth, access)
        self._used(blocks)

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        returns = (self.ghosts.recall(key) or 0) > self.bottom
        return self.lir if returns or self._filling else self.hir

    def touch(self, block: int, access: Access) -> None:
        in_stack = self.place[block] is self.lir or self.last[block] > self.bottom
        self.enqueue(block, self.lir if in_stack else self.hir)

    def choose(self) -> int:
        self._filling = False
        self._shrink()
        block = self.hir.first_candidate()
        return block if block >= 0 else self.lir.first_candidate()

    def gone(self, block: int, key: Hashable) -> None:
        if self.place[block] is self.hir and self.last[block] > self.bottom:
            self.ghosts.remember(key, self.last[block], self.capacity)

    def removed(self, block: int) -> None:
        super().removed(block)
        self.last.pop(block, None)

    def num_ghosts(self) -> int:
        return len(self.ghosts)

    def _used(self, blocks: Sequence[int]) -> None:
        self._event += 1
        self.last.update(dict.fromkeys(blocks, self._event))

    def _shrink(self) -> None:
        """The LIR blocks used longest ago become HIR ones until they are as many as they may be."""
        while not self._filling and len(self.lir) > max(1, int((1 - self.share) * self.capacity)):
            self.enqueue(next(iter(self.lir.blocks)), self.hir)
        if self.lir.blocks:
            self.bottom = self.last[next(iter(self.lir.blocks))]


class LirsRuns(QueuedRuns):
    """The same over runs; the mark of a piece is the event of its last use."""

    needs_keys = True

    def __init__(self, hir: float, ghosts: Ghosts[int]) -> None:
        super().__init__(2)
        self.lir, self.hir = self.queues
        self.share = hir
        self.ghosts = ghosts
        self.bottom = 0
        self._stay = {self.lir: self.lir, self.hir: self.hir}
        self._filling = True

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self._shrink()
        super().inserted(runs, access, keys)
        self._used(runs)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        self._shrink()
        super().accessed(runs, access)
        self._used(runs)

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue | list[Entrance]:
        if self._filling:
            return self.lir
        if self.ghosts.knows_none_of(keys):
            return self.hir
        bottom = self.bottom
        return [(stop, self.lir if (last or 0) > bottom else self.hir) for stop, last in self.ghosts.recall_all(keys)]

    def touch(self, run: Run, stamp: int) -> None:
        for piece in run.rank:
            if piece.queue is self.hir and piece.mark > self.bottom:
                self.move(piece, self.lir, stamp)
        self.renew_by(self._stay, run, stamp)

    def choose(self, most: int) -> tuple[Run | None, int]:
        self._filling = False
        self._shrink()
        run = self.hir.first_candidate() or self.lir.first_candidate()
        return run, min(most, len(run.rank[-1])) if run else 0

    def gone(self, piece: Piece, keys: Sequence[Hashable]) -> None:
        if piece.queue is self.hir and piece.mark > self.bottom:
            self.ghosts.remember_all(keys, piece.mark, self.capacity)

    def _used(self, runs: Sequence[Run]) -> None:
        for run in runs:
            for piece in run.rank:
                piece.mark = piece.stamp

    def _shrink(self) -> None:
        if not self._filling:
            self.spill(self.lir, max(1, int((1 - self.share) * self.capacity)), self.hir)
        oldest = self.lir.oldest
        if oldest is not None:
            self.bottom = oldest.mark
