"""Tail-optimised LRU: first evict what can be recomputed within the latency budget of the next turn, LRU beyond that.

The last `budget` tokens of a conversation may go without making its next turn miss its target for the time to first
token; the blocks before them may not. So the tails go first, least recent first, and then plain LRU decides.

Source: Zhang et al., "Tail-optimized caching for LLM inference", 2025 (T-LRU).
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor

INDEX_BITS = 40
DEAR = 1 << INDEX_BITS + DEPTH_BITS


class TailLatency(RankedEvictor):
    """Rank: (beyond the budget, last use, deeper first)."""

    def __init__(self, block_size: int, budget: int = 2048) -> None:
        """`budget`: tokens whose recomputation still meets the target; `block_size`: tokens per block."""
        if budget < 0 or block_size < 1:
            raise ValueError(f"budget must be 0 or more and block_size 1 or more, got {budget} and {block_size}")
        super().__init__()
        self.block_size, self.budget = block_size, budget

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        first = (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))
        dear = (access.num_tokens - self.budget) // self.block_size - depth  # blocks that end before the tail begins
        for block in blocks[: max(dear, 0)]:
            self.ranks[block] += DEAR
