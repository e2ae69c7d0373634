"""Ranked policies that remember something of a block after it left, under its key, for as many keys as the pool had.

Knows nothing of what is remembered.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from cache.access import Access
from cache.evictor.departing import DepartingEvictor
from cache.evictor.ghosts import Ghosts

T = TypeVar("T")


class RememberingEvictor(DepartingEvictor, Generic[T]):
    """`facts[block]` is what the policy knows of a resident block; it survives the block as a ghost."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[int, T] = {}
        self.keys: dict[int, Hashable] = {}
        self.ghosts: Ghosts[T] = Ghosts()
        self.capacity = 0

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        for i, (block, key) in enumerate(zip(blocks, keys, strict=True)):
            self.keys[block] = key
            self.used(block, self.ghosts.recall(key), depth + i, access)
        self.capacity = max(self.capacity, len(self.keys))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for i, block in enumerate(blocks):
            self.used(block, self.facts[block], depth + i, access)

    @abstractmethod
    def used(self, block: int, facts: T | None, depth: int, access: Access) -> None:
        """A request uses the block, of which `facts` are known: write `self.facts[block]` and `self.ranks[block]`."""

    def departed(self, block: int, chosen: bool) -> None:
        key, facts = self.keys.pop(block, None), self.facts.pop(block, None)
        if chosen and facts is not None:
            self.ghosts.remember(key, facts, self.capacity)

    def num_ghosts(self) -> int:
        return len(self.ghosts)
