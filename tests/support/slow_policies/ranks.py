"""The block of lowest rank goes: LRU-K, GDSF, MRU, length-aware, Marconi, T-LRU. Ranks are found anew each time."""

from __future__ import annotations

from collections.abc import Hashable
from math import floor
from typing import Any

from cache.access import Access
from support.slow_policies.base import Slow


class LruK(Slow):
    def __init__(self, k: int = 2) -> None:
        super().__init__()
        self.k = k
        self.uses: dict[Hashable, list[int]] = {}
        self.depth: dict[int, int] = {}
        self.ghosts: list[Hashable] = []

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.depth[block] = depth
        if key in self.ghosts:
            self.ghosts.remove(key)
        self.uses.setdefault(key, []).append(access.index)

    def hit(self, block: int, depth: int, access: Access) -> None:
        self.uses[self.key[block]].append(access.index)

    def choose(self) -> int:
        def order(block: int) -> Any:
            uses = self.uses[self.key[block]]
            return (uses[-self.k] if len(uses) >= self.k else -1), uses[-1], -self.depth[block]

        return min(self.free, key=order)

    def leave(self, block: int, key: Hashable) -> None:
        self.ghosts.append(key)
        while len(self.ghosts) > self.pool:
            del self.uses[self.ghosts.pop(0)]


class Gdsf(Slow):
    def __init__(self, crossover: float = 1600) -> None:
        super().__init__()
        self.crossover = crossover
        self.age = 0.0
        self.facts: dict[int, Any] = {}

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.facts[block] = (0, 0, 0, 0)
        self.hit(block, depth, access)

    def hit(self, block: int, depth: int, access: Access) -> None:
        uses = self.facts[block][3] + 1
        self.facts[block] = (self.age + int(uses * (1 + depth / self.crossover) * 65536), access.index, -depth, uses)

    def choose(self) -> int:
        return min(self.free, key=self.facts.__getitem__)

    def leave(self, block: int, key: Hashable) -> None:
        self.age = max(self.age, self.facts.pop(block)[0])


class Ranked(Slow):
    """`facts[block]` is (depth, index of the last request, tokens of its prompt)."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[int, tuple[int, int, int]] = {}

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.hit(block, depth, access)

    def hit(self, block: int, depth: int, access: Access) -> None:
        self.facts[block] = depth, access.index, access.num_tokens

    def choose(self) -> int:
        return min(self.free, key=lambda block: self.rank(*self.facts[block]))

    def leave(self, block: int, key: Hashable) -> None:
        del self.facts[block]

    def rank(self, depth: int, last: int, num_tokens: int) -> Any:
        raise NotImplementedError


class Mru(Ranked):
    def rank(self, depth: int, last: int, num_tokens: int) -> Any:
        return -last, -depth


class LengthAware(Ranked):
    def rank(self, depth: int, last: int, num_tokens: int) -> Any:
        return -depth, last


class Marconi(Ranked):
    """A block at depth d costs 1 + d / crossover of the first one: attention looks back at d blocks."""

    def __init__(self, alpha: float = 5000, crossover: float = 1600) -> None:
        super().__init__()
        self.alpha, self.crossover = alpha, crossover

    def rank(self, depth: int, last: int, num_tokens: int) -> Any:
        saved = depth / self.crossover  # beyond what a first block saves
        return last + floor(256 * self.alpha * saved) / 256, -depth


class TailLatency(Ranked):
    """What ends within the last `budget` tokens may be computed anew in time; the rest is dear."""

    def __init__(self, block_size: int, budget: int = 2048) -> None:
        super().__init__()
        self.block_size, self.budget = block_size, budget

    def rank(self, depth: int, last: int, num_tokens: int) -> Any:
        dear = (depth + 1) * self.block_size <= num_tokens - self.budget
        return dear, last, -depth
