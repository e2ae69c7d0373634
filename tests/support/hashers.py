"""Hashes that collide on purpose."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.hashing.base import Hasher


class WeakHash(Hasher):
    """A chained hash with only `values` different keys: most lookups collide."""

    def __init__(self, values: int) -> None:
        self.values = values

    def root(self, extra: bytes) -> Hashable:
        return sum(extra) % self.values

    def chain(self, parent: Hashable, contents: Sequence[Hashable]) -> list[Hashable]:
        keys: list[Hashable] = []
        for content in contents:
            parent = hash((parent, content)) % self.values
            keys.append(parent)
        return keys
