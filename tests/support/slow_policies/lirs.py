"""LIRS with its two lists in full: the stack S of keys by last use, and the queue Q of resident HIR blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from support.slow_policies.base import Slow


class Lirs(Slow):
    """A request is one moment: S is a list of moments, each with the keys used last in it, deepest first.

    What a request touches moves at once; then the LIR set gives back what is too much, lowest first.
    """

    def __init__(self, hir: float = 0.05) -> None:
        super().__init__()
        self.hir = hir
        self.stack: list[list[Hashable]] = []
        self.lir: list[Hashable] = []
        self.queue: list[int] = []
        self.ghosts: list[Hashable] = []
        self.full = False

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        back = [key for key in keys if self.in_stack(key)]
        self.to_top(keys)
        for block, key in reversed(list(zip(blocks, keys, strict=True))):
            self.key[block] = key
            if key in self.ghosts:
                self.ghosts.remove(key)
            if key in back or not self.full:
                self.lir.append(key)
            else:
                self.queue.append(block)
        self.pool = max(self.pool, len(self.key))
        self.shrink()

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        close = [block for block in blocks if self.in_stack(self.key[block])]
        self.to_top([self.key[block] for block in blocks])
        for block in reversed(blocks):
            if block in self.queue:
                self.queue.remove(block)
                if block in close:
                    self.lir.append(self.key[block])
                else:
                    self.queue.append(block)
        self.shrink()

    def in_stack(self, key: Hashable) -> bool:
        return any(key in moment for moment in self.stack)

    def to_top(self, keys: Sequence[Hashable]) -> None:
        for key in keys:
            self.drop(key)
        self.stack.append(list(reversed(keys)))

    def drop(self, key: Hashable) -> None:
        for moment in self.stack:
            if key in moment:
                moment.remove(key)

    def lowest(self) -> Hashable:
        return next(key for moment in self.stack for key in moment if key in self.lir)

    def shrink(self) -> None:
        """As many LIR keys as have room; what was not used after the last of them is in the stack no more."""
        while self.full and len(self.lir) > max(1, int((1 - self.hir) * self.pool)):
            key = self.lowest()
            self.lir.remove(key)
            self.drop(key)
            self.queue.append(next(block for block in self.key if self.key[block] == key))
        if self.lir:
            while self.lowest() not in self.stack[0]:
                self.stack.pop(0)
            self.stack[0] = [key for key in self.stack[0] if key in self.lir]

    def choose(self) -> int:
        self.full = True
        self.shrink()
        block_of = {key: block for block, key in self.key.items()}
        return self.first(self.queue, [block_of[key] for moment in self.stack for key in moment if key in self.lir])

    def leave(self, block: int, key: Hashable) -> None:
        if key in self.lir:
            self.lir.remove(key)
            self.drop(key)
            self.shrink()
            return
        self.queue.remove(block)
        if self.in_stack(key):
            self.ghosts.append(key)
            if len(self.ghosts) > self.pool:
                self.drop(self.ghosts.pop(0))
