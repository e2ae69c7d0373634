"""Python's own `hash` of (parent key, content): 64 bits, not cryptographic, the fastest from Python.

Keys of byte contents differ between processes unless PYTHONHASHSEED is set; hits never do.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.hashing.base import Hasher


class BuiltinHash(Hasher):
    """`hash((parent, content))`."""

    def root(self, extra: bytes) -> Hashable:
        return hash(("root", extra))

    def chain(self, parent: Hashable, contents: Sequence[Hashable]) -> list[Hashable]:
        keys: list[Hashable] = []
        for content in contents:
            parent = hash((parent, content))
            keys.append(parent)
        return keys
