"""The key of a block covers its whole prefix: key = hash(parent key, own token ids), starting at a root of extra keys.

Knows nothing of blocks, pools or what happens on a collision: `exact` only says whether one need be feared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence


class Hasher(ABC):
    """A chained hash over block contents (`TokenIds.contents`)."""

    exact: bool = False
    """True where collisions are out of reach; otherwise the allocator compares tokens and parent on every hit."""

    @abstractmethod
    def root(self, extra: bytes) -> Hashable:
        """The key before the first block, from the encoded extra keys (`ExtraKeys.encode`)."""

    @abstractmethod
    def chain(self, parent: Hashable, contents: Sequence[Hashable]) -> list[Hashable]:
        """The keys of consecutive blocks, the first of which follows the block whose key is `parent`. O(tokens)."""


def content_bytes(content: Hashable) -> bytes:
    """A block's content as bytes; injective over packed tokens, one made-up head, and tuples of ids."""
    if isinstance(content, bytes):
        return b"t" + content
    if isinstance(content, int):
        return b"h" + content.to_bytes(8, "little")
    if isinstance(content, tuple):
        return b"r" + b"".join(i.to_bytes(8, "little") for i in content)
    raise TypeError(f"a block's content is bytes, an int or a tuple of ints, got {type(content).__name__}")
