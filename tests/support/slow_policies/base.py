"""What the slow models share: the blocks, which of them may go, and a call for each that enters, is hit or leaves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.base import Evictor, Uncover


class Slow(Evictor):
    def __init__(self) -> None:
        self.free: list[int] = []
        self.key: dict[int, Hashable] = {}
        self.pool = 0

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        for i in reversed(range(len(blocks))):
            self.key[blocks[i]] = keys[i]
            self.enter(blocks[i], keys[i], depth + i, access)
        self.pool = max(self.pool, len(self.key))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for i in reversed(range(len(blocks))):
            self.hit(blocks[i], depth + i, access)

    def evictable(self, block: int) -> None:
        self.free.append(block)

    def pinned(self, block: int) -> None:
        self.free.remove(block)

    def removed(self, block: int) -> None:
        raise NotImplementedError

    def victim(self) -> int:
        block = self.choose()
        self.leave(block, self.key.pop(block))
        self.free.remove(block)
        return block

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        chosen: list[int] = []
        while len(chosen) < count:
            chosen.append(self.victim())
            parent = uncover(chosen[-1])
            if parent >= 0:
                self.uncovered(parent)
        return chosen

    def uncovered(self, block: int) -> None:
        self.evictable(block)

    def candidates(self) -> set[int]:
        return set(self.free)

    def first(self, *queues: list[int]) -> int:
        return next(block for queue in queues for block in queue if block in self.free)

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        raise NotImplementedError

    def hit(self, block: int, depth: int, access: Access) -> None:
        raise NotImplementedError

    def choose(self) -> int:
        raise NotImplementedError

    def leave(self, block: int, key: Hashable) -> None:
        raise NotImplementedError
