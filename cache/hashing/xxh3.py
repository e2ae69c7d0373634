"""XXH3 (64 bit) of the content, seeded with the parent's key: stable between processes, not cryptographic.

Source: Y. Collet, xxHash, https://xxhash.com.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

from xxhash import xxh3_64_intdigest

from cache.hashing.base import Hasher, content_bytes


class Xxh3(Hasher):
    """`xxh3_64(content, seed=parent)`."""

    def root(self, extra: bytes) -> Hashable:
        return xxh3_64_intdigest(b"root" + extra)

    def chain(self, parent: Hashable, contents: Sequence[Hashable]) -> list[Hashable]:
        seed = cast(int, parent)
        keys: list[Hashable] = []
        for content in contents:
            seed = xxh3_64_intdigest(content_bytes(content), seed)
            keys.append(seed)
        return keys
