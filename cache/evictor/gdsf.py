"""GDSF: priority = age + uses x cost / size; the lowest goes, and the age becomes its priority.

Blocks are of one size; the cost is the computation a hit saves, which grows with a block's depth since attention looks
back at everything before it: 1 + depth / crossover. With no such growth it is LFU with dynamic ageing. Uses are counted
since insertion.

Source: Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy", HP Labs 1998.
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.departing import DepartingEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS

PRECISION = 1 << 16
INDEX_BITS = 40


class Gdsf(DepartingEvictor):
    """Rank: (priority, last use, deeper first)."""

    def __init__(self, crossover: float = 1600.0) -> None:
        """`crossover`: depth, in blocks, at which attention costs as much as the rest of the model."""
        if crossover <= 0:
            raise ValueError(f"crossover must be more than 0 blocks, got {crossover}")
        super().__init__()
        self.crossover = crossover
        self.age = 0
        self._uses: dict[int, int] = {}
        self._priority: dict[int, int] = {}

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self._uses.update(dict.fromkeys(blocks, 0))
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for at, block in enumerate(blocks, depth):
            uses = self._uses[block] = self._uses[block] + 1
            priority = self._priority[block] = self.age + int(uses * (1 + at / self.crossover) * PRECISION)
            self.ranks[block] = ((priority << INDEX_BITS) + access.index << DEPTH_BITS) + DEEPEST - at

    def departed(self, block: int, chosen: bool) -> None:
        self._uses.pop(block, None)
        priority = self._priority.pop(block, 0)
        if chosen:
            self.age = max(self.age, priority)
