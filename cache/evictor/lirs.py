"""LIRS: keep blocks by the distance between their last two uses, not by the age of the last one.

Blocks of short reuse distance are LIR and own most of the pool; the others (HIR) pass through a short queue. The stack
orders keys by last use, goes on for HIR keys that have left, and always ends in a LIR key: a HIR key found in it has
been reused sooner than the last LIR one, so they change places. The queue's first candidate goes; where it has none,
the LIR block lowest in the stack that may go.

Source: Jiang and Zhang, "LIRS: an efficient low inter-reference recency set replacement policy", SIGMETRICS 2002.
O(log n) per candidate, O(1) amortised per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from cache.access import Access
from cache.evictor.queues import CandidateQueue, QueueEvictor


class Lirs(QueueEvictor):
    """`stack`: keys by last use, with the block that holds each, or -1 for a ghost."""

    def __init__(self, hir: float = 0.05) -> None:
        """`hir`: share of the pool left to blocks of long reuse distance."""
        if not 0 < hir < 1:
            raise ValueError(f"hir must lie between 0 and 1, got {hir}")
        super().__init__(2)
        self.lir, self.hir = self.queues
        self.share = hir
        self.stack: OrderedDict[Hashable, int] = OrderedDict()
        self._ghosts: OrderedDict[Hashable, None] = OrderedDict()
        self._filling = True

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        returns = self._ghosts.pop(key, 0) is None
        self.stack.pop(key, None)
        self.stack[key] = -1  # the block's id follows in `inserted`
        if returns and not self._filling:
            self._demote()
        return self.lir if returns or self._filling else self.hir

    def enqueue(self, block: int, queue: CandidateQueue) -> None:
        super().enqueue(block, queue)
        if self.keys[block] in self.stack:
            self.stack[self.keys[block]] = block

    def touch(self, block: int, access: Access) -> None:
        key = self.keys[block]
        in_stack = self.stack.pop(key, None) is not None
        self.stack[key] = block
        if self.place[block] is self.lir:
            self.enqueue(block, self.lir)
            self._prune()
        elif in_stack:
            self.enqueue(block, self.lir)
            self._demote()
        else:
            self.enqueue(block, self.hir)

    def choose(self) -> int:
        self._filling = False
        while len(self.lir) > max(1.0, (1 - self.share) * self.capacity):
            self._demote()
        block = self.hir.first_candidate()
        return block if block >= 0 else self.lir.first_candidate()

    def gone(self, block: int, key: Hashable) -> None:
        if self.place[block] is self.hir and key in self.stack:
            self.stack[key] = -1
            self._ghosts[key] = None
            while len(self._ghosts) > self.capacity:
                del self.stack[self._ghosts.popitem(last=False)[0]]

    def removed(self, block: int) -> None:
        key = self.keys.get(block)
        super().removed(block)
        if key is not None and self.stack.get(key) == block:
            del self.stack[key]
            self._prune()

    def num_ghosts(self) -> int:
        return len(self._ghosts)

    def _demote(self) -> None:
        """The LIR block used longest ago becomes a HIR one."""
        if self.lir.blocks:
            oldest = next(iter(self.lir.blocks))
            self.stack.pop(self.keys[oldest], None)
            self.enqueue(oldest, self.hir)
        self._prune()

    def _prune(self) -> None:
        """Cut the stack below its last LIR key."""
        while self.stack:
            key, block = next(iter(self.stack.items()))
            if block >= 0 and self.place.get(block) is self.lir:
                break
            del self.stack[key]
            self._ghosts.pop(key, None)
