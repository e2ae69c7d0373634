"""Workload-aware: evict from the category whose oldest block is least likely to be used again within the horizon.

Per category (chat, API, agent …) two numbers are learned: which share of blocks is used again, and after how long on
average. With exponential gaps, the chance that a block of age a is used within the next h seconds is
r·e^(−a/m)·(1 − e^(−h/m)) / (1 − r + r·e^(−a/m)). Within a category the least recent block goes first, deeper first.

Source: Wang et al., "KVCache cache in the wild: characterizing and optimizing KVCache cache at a large cloud provider",
USENIX ATC 2025. O(log n + categories) per victim, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import exp

from cache.access import Access
from cache.evictor.queues import CandidateQueue, QueueEvictor

PRIOR = 8.0
"""Blocks' worth of belief that half are used again, after one horizon."""
MEMORY = 50_000.0
"""Blocks of a category after which what was learned counts half."""


class Category(CandidateQueue):
    """An LRU queue and what is known of reuse in it."""

    def __init__(self) -> None:
        super().__init__()
        self.uses = self.reuses = self.gaps = 0.0

    def forget(self) -> None:
        """Halve the evidence once it is plenty, so that a category may change its ways."""
        if self.uses > MEMORY:
            self.uses, self.reuses, self.gaps = self.uses / 2, self.reuses / 2, self.gaps / 2

    def chance(self, age: float, horizon: float) -> float:
        """That a block unused for `age` seconds is used within the next `horizon` seconds."""
        share = min((self.reuses + PRIOR / 2) / (self.uses + PRIOR), 0.999)
        mean = max((self.gaps + PRIOR / 2 * horizon) / (self.reuses + PRIOR / 2), 1e-6)
        alive = share * exp(-age / mean)
        return alive * (1 - exp(-horizon / mean)) / (1 - share + alive)


class WorkloadAware(QueueEvictor):
    """One queue per category; blocks without one share a queue."""

    def __init__(self, horizon: float = 300.0) -> None:
        """`horizon`: seconds within which a reuse is worth waiting for."""
        if horizon <= 0:
            raise ValueError(f"horizon must be more than 0 seconds, got {horizon}")
        super().__init__(0)
        self.horizon = horizon
        self.categories: dict[str | None, Category] = {}
        self._last: dict[int, float] = {}
        self._now = 0.0

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(blocks, depth, access, keys)
        self._used(blocks, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for block in blocks:
            category, gap = self.place[block], access.time - self._last[block]
            assert isinstance(category, Category)
            category.reuses += 1
            category.gaps += max(gap, 0.0)
        super().accessed(blocks, depth, access)
        self._used(blocks, access)

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.categories.setdefault(access.category, Category())

    def touch(self, block: int, access: Access) -> None:
        self.enqueue(block, self.admit(None, access))

    def choose(self) -> int:
        def chance(head: tuple[int, Category]) -> float:
            return head[1].chance(self._now - self._last[head[0]], self.horizon)

        heads = [(category.first_candidate(), category) for category in self.categories.values()]
        return min((head for head in heads if head[0] >= 0), key=chance)[0]

    def removed(self, block: int) -> None:
        super().removed(block)
        self._last.pop(block, None)

    def _used(self, blocks: Sequence[int], access: Access) -> None:
        self._now = max(self._now, access.time)
        self._last.update(dict.fromkeys(blocks, access.time))
        category = self.categories.setdefault(access.category, Category())
        category.uses += len(blocks)
        category.forget()
