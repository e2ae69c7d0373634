"""LRU-K: the block whose K-th last use lies farthest back goes; one with fewer than K uses goes before all others.

Uses are remembered beyond eviction, so a block that returns in time is not a stranger. Among blocks with fewer than K
uses the least recent goes first. One request is one use, so no period of correlated references is needed.

Source: O'Neil, O'Neil, Weikum, "The LRU-K page replacement algorithm for database disk buffering", SIGMOD 1993.
O(log n) per candidate, O(K) per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS
from cache.evictor.remembering import RememberingEvictor

INDEX_BITS = 40


class LruK(RememberingEvictor[tuple[int, ...]]):
    """Facts: indices of the last K uses, oldest first. Rank: (K-th last use or none, last use, deeper first)."""

    def __init__(self, k: int = 2) -> None:
        if k < 1:
            raise ValueError(f"k must be 1 or more, got {k}")
        super().__init__()
        self.k = k

    def used(self, block: int, facts: tuple[int, ...] | None, depth: int, access: Access) -> None:
        uses = self.facts[block] = (*(facts or ()), access.index)[-self.k :]
        kth = uses[0] + 1 if len(uses) == self.k else 0
        self.ranks[block] = ((kth << INDEX_BITS) + access.index << DEPTH_BITS) + DEEPEST - depth
