"""Keys of blocks that have left, with what a policy wants to remember of them: bounded, the oldest forgotten first.

Knows nothing of why a key is remembered. O(1) per operation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Ghosts(Generic[T]):
    """A mapping from key to memory that forgets from its old end."""

    def __init__(self) -> None:
        self._memory: OrderedDict[Hashable, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._memory)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._memory

    def remember(self, key: Hashable, memory: T, limit: int) -> None:
        """Remember `key` as the newest; then forget the oldest until at most `limit` are left."""
        self._memory.pop(key, None)
        self._memory[key] = memory
        self.shrink(limit)

    def remember_all(self, keys: Sequence[Hashable], memory: T, limit: int) -> None:
        """`remember` each of these keys, the last one as the newest."""
        if not self.knows_none_of(keys):
            for key in keys:
                self._memory.pop(key, None)
        self._memory.update(dict.fromkeys(keys, memory))
        self.shrink(limit)

    def knows_none_of(self, keys: Iterable[Hashable]) -> bool:
        """Whether none of these is remembered, at the cost of a glance at each."""
        return self._memory.keys().isdisjoint(keys)

    def shrink(self, limit: int) -> None:
        """Forget the oldest until at most `limit` are left."""
        for _ in range(len(self._memory) - max(limit, 0)):
            self._memory.popitem(last=False)

    def recall(self, key: Hashable) -> T | None:
        """What was remembered of `key`, which is a ghost no more; None where nothing was."""
        return self._memory.pop(key, None)
