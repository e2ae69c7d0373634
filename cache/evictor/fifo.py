"""First in, first out: the candidate inserted longest ago, however often it was used since.

O(log n) per candidate, O(1) per inserted block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor


class Fifo(RankedEvictor):
    """Rank: (index of the inserting request, deeper first)."""

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        first = (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        return
