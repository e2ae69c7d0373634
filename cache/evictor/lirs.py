"""LIRS: keep blocks by the distance between their last two uses, not by the age of the last one.

Blocks of short reuse distance are LIR and own most of the pool; the others (HIR) pass through a short queue. The paper's
stack orders keys by last use, goes on for HIR keys that have left, and always ends in a LIR key: a HIR key found in it
has been reused sooner than the last LIR one, so they change places. The queue's first candidate goes; where it has none,
the LIR block used longest ago that may go.

Whether a key is in the stack follows from when it was used last: after the LIR block used longest ago (`bottom`). So a
stamp per key is kept, and no stack. What a request touches moves at once; then LIR blocks that are too many go to the
queue. Until the first eviction all blocks are LIR; LIR blocks that had to go leave room for the next that return in time.

Source: Jiang and Zhang, "LIRS: an efficient low inter-reference recency set replacement policy", SIGMETRICS 2002.
O(log n) per candidate, O(1) amortised per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ghosts import Ghosts
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS


class Lirs(QueueEvictor):
    """`stamps`: when a block was last used, (event, deeper first); a ghost keeps the stamp of its block."""

    def __init__(self, hir: float = 0.05) -> None:
        """`hir`: share of the pool left to blocks of long reuse distance."""
        if not 0 < hir < 1:
            raise ValueError(f"hir must lie between 0 and 1, got {hir}")
        super().__init__(2)
        self.lir, self.hir = self.queues
        self.share = hir
        self.stamps: dict[int, int] = {}
        self.ghosts: Ghosts[int] = Ghosts()
        self.bottom = self._event = 0
        self._filling = True

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(blocks, depth, access, keys)
        self._stamp(blocks, depth)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        super().accessed(blocks, depth, access)
        self._stamp(blocks, depth)

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        last = self.ghosts.recall(key)
        return self.lir if self._filling or (last is not None and last > self.bottom) else self.hir

    def touch(self, block: int, access: Access) -> None:
        stays = self.place[block] is self.hir and self.stamps[block] < self.bottom
        self.enqueue(block, self.hir if stays else self.lir)

    def choose(self) -> int:
        self._filling = False
        self._shrink()
        block = self.hir.first_candidate()
        return block if block >= 0 else self.lir.first_candidate()

    def gone(self, block: int, key: Hashable) -> None:
        if self.place[block] is self.hir and self.stamps[block] > self.bottom:
            self.ghosts.remember(key, self.stamps[block], self.capacity)

    def removed(self, block: int) -> None:
        super().removed(block)
        if self.stamps.pop(block, None) is not None:
            self._find_bottom()

    def num_ghosts(self) -> int:
        return len(self.ghosts)

    def _stamp(self, blocks: Sequence[int], depth: int) -> None:
        self._event += 1
        first = (self._event << DEPTH_BITS) + DEEPEST - depth
        self.stamps.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))
        self._shrink()

    def _shrink(self) -> None:
        """The LIR blocks used longest ago become HIR ones until they are as many as they may be."""
        while not self._filling and len(self.lir) > max(1.0, (1 - self.share) * self.capacity):
            self.enqueue(next(iter(self.lir.blocks)), self.hir)
        self._find_bottom()

    def _find_bottom(self) -> None:
        if self.lir.blocks:
            self.bottom = self.stamps[next(iter(self.lir.blocks))]
