"""Priorities per token range, for a while: what the caller marked as precious goes last, until its time is up.

A request may give each range of its prompt a priority from 0 to 100 and a duration (`Access.retention`); the rest has
the request's own priority. Lower priority goes first, LRU within one; when the duration since the last use is over, the
block falls back to the default.

Source: NVIDIA TensorRT-LLM, KV cache retention configuration (documentation, 2025).
O(log n) per candidate and per expiry, O(ranges) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heappop, heappush

from cache.access import Access
from cache.evictor.base import Uncover
from cache.evictor.departing import DepartingEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS

INDEX_BITS = 40
RECENCY_BITS = INDEX_BITS + DEPTH_BITS


class TtlPriority(DepartingEvictor):
    """Rank: (priority, last use, deeper first)."""

    def __init__(self, block_size: int, default: int = 35) -> None:
        """`default`: the priority of what nobody marked; `block_size`: tokens per block."""
        if not 0 <= default <= 100 or block_size < 1:
            raise ValueError(f"default must lie in 0..100 and block_size be positive, got {default} and {block_size}")
        super().__init__()
        self.block_size, self.default = block_size, default
        self._expiries: list[tuple[float, int, int]] = []
        self._now = 0.0

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        self._now = max(self._now, access.time)
        own = access.priority or self.default
        first = (own << RECENCY_BITS) + (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))
        for mark in access.retention:
            start = max(mark.start // self.block_size - depth, 0)
            stop = len(blocks) if mark.stop is None else max(-(-mark.stop // self.block_size) - depth, start)
            for block in blocks[start:stop]:
                rank = self.ranks[block] & (1 << RECENCY_BITS) - 1 | mark.priority << RECENCY_BITS
                self.ranks[block] = rank
                if mark.seconds is not None:
                    heappush(self._expiries, (access.time + mark.seconds, block, rank))

    def victim(self) -> int:
        self._expire()
        return super().victim()

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        self._expire()
        return super().victims(count, uncover)

    def departed(self, block: int, chosen: bool) -> None:
        return

    def _expire(self) -> None:
        """Blocks whose time is up, and that nobody used since, get the default priority."""
        if len(self._expiries) > 2 * len(self.ranks) + 64:
            self._expiries = sorted(entry for entry in self._expiries if self.ranks.get(entry[1]) == entry[2])
        while self._expiries and self._expiries[0][0] <= self._now:
            _, block, rank = heappop(self._expiries)
            if self.ranks.get(block) == rank:
                self.rerank(block, rank & (1 << RECENCY_BITS) - 1 | self.default << RECENCY_BITS)
