"""The offline optimum: evict the candidate whose next use lies farthest ahead. Not a policy to deploy, a line to plot.

Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966 (MIN).
Needs the whole trace first (`foresee`). O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.future import NEVER, Future


class Belady(RankedEvictor):
    """Rank: (farthest next use first, deeper first)."""

    needs_future = True

    def __init__(self) -> None:
        super().__init__()
        self._future: Future | None = None

    def foresee(self, future: Future) -> None:
        self._future = future

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        if self._future is None:
            raise PolicyError("belady must be shown the future of the trace (foresee) before its first event")
        ranks = self.ranks
        shallower = DEEPEST - depth
        for block, next_use in zip(blocks, self._future.next_use(access.index, depth, len(blocks)), strict=True):
            ranks[block] = (NEVER - next_use << DEPTH_BITS) + shallower
            shallower -= 1
