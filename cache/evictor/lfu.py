"""Least frequently used: fewest requests since insertion, then the least recent, then deeper first. No ageing.

Source: the frequency-count replacement of Belady, "A study of replacement algorithms for a virtual-storage computer",
IBM Systems Journal 1966. O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor

INDEX_BITS = 40
COUNT_SHIFT = INDEX_BITS + DEPTH_BITS
ONE = 1 << COUNT_SHIFT


class Lfu(RankedEvictor):
    """Rank: (requests since insertion, index of the last one, deeper first)."""

    adapts = False

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        first = ONE + (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        ranks = self.ranks
        recency = (access.index << DEPTH_BITS) + DEEPEST - depth
        for block in blocks:
            ranks[block] = ((ranks[block] >> COUNT_SHIFT) + 1 << COUNT_SHIFT) + recency
            recency -= 1
