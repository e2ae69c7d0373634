"""LIRS with its two lists in full: the stack S of keys by last use, and the queue Q of resident HIR blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from support.slow_policies.base import Slow


class Lirs(Slow):
    """Everything a request touches at once moves at once; then the LIR set gives back what is too much, lowest first."""

    def __init__(self, hir: float = 0.05) -> None:
        super().__init__()
        self.hir = hir
        self.stack: list[Hashable] = []
        self.lir: list[Hashable] = []
        self.queue: list[int] = []
        self.ghosts: list[Hashable] = []
        self.full = False

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        back = [key for key in keys if key in self.stack]
        for block, key in reversed(list(zip(blocks, keys, strict=True))):
            self.key[block] = key
            if key in self.ghosts:
                self.ghosts.remove(key)
            self.to_top(key)
            if key in back or not self.full:
                self.lir.append(key)
            else:
                self.queue.append(block)
        self.pool = max(self.pool, len(self.key))
        self.shrink()

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        close = [block for block in blocks if self.key[block] in self.stack]
        for block in reversed(blocks):
            self.to_top(self.key[block])
            if block in self.queue:
                self.queue.remove(block)
                if block in close:
                    self.lir.append(self.key[block])
                else:
                    self.queue.append(block)
        self.shrink()

    def to_top(self, key: Hashable) -> None:
        if key in self.stack:
            self.stack.remove(key)
        self.stack.append(key)

    def shrink(self) -> None:
        """As many LIR keys as have room; below the last of them the stack ends."""
        while self.full and len(self.lir) > max(1, (1 - self.hir) * self.pool):
            lowest = next(key for key in self.stack if key in self.lir)
            self.lir.remove(lowest)
            self.stack.remove(lowest)
            self.queue.append(next(block for block, key in self.key.items() if key == lowest))
        while self.lir and self.stack[0] not in self.lir:
            self.stack.pop(0)

    def choose(self) -> int:
        self.full = True
        self.shrink()
        block_of = {key: block for block, key in self.key.items()}
        return self.first(self.queue, [block_of[key] for key in self.stack if key in self.lir])

    def leave(self, block: int, key: Hashable) -> None:
        if key in self.lir:
            self.lir.remove(key)
            self.stack.remove(key)
            self.shrink()
            return
        self.queue.remove(block)
        if key in self.stack:
            self.ghosts.append(key)
            if len(self.ghosts) > self.pool:
                forgotten = self.ghosts.pop(0)
                if forgotten in self.stack:
                    self.stack.remove(forgotten)
