"""SHA-256 over (parent digest, content): 32-byte keys, stable everywhere, collisions out of reach."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import sha256
from typing import cast

from cache.hashing.base import Hasher, content_bytes


class Sha256(Hasher):
    """`sha256(parent + content)`; the parent has a fixed length, so the concatenation is injective."""

    exact = True

    def root(self, extra: bytes) -> Hashable:
        return sha256(b"root" + extra).digest()

    def chain(self, parent: Hashable, contents: Sequence[Hashable]) -> list[Hashable]:
        digest = cast(bytes, parent)
        keys: list[Hashable] = []
        for content in contents:
            digest = sha256(digest + content_bytes(content)).digest()
            keys.append(digest)
        return keys
