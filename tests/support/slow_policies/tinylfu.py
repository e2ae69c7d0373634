"""W-TinyLFU in three lists, with the sketch of what has left spelled out cell by cell."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from support.slow_policies.base import Slow


class WTinyLfu(Slow):
    """Everything a request touches at once moves at once; residents are counted one by one."""

    def __init__(self, window: float = 0.01, protected: float = 0.8, counters: int = 131072) -> None:
        super().__init__()
        self.share, self.protected_share = window, protected
        self.counters = counters
        self.widths: list[int] = []
        self.window: list[int] = []
        self.probation: list[int] = []
        self.protected: list[int] = []
        self.uses: dict[int, int] = {}
        self.cells: dict[tuple[int, int], int] = {}
        self.samples = 0
        self.full = False

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.key.update(zip(blocks, keys, strict=True))
        self.pool = max(self.pool, len(self.key))
        self.window += reversed(blocks)
        while not self.full and len(self.window) > max(1, self.share * self.pool):
            self.probation.append(self.window.pop(0))
        for block, key in zip(blocks, keys, strict=True):
            self.uses[block] = min(15, 1 + min((self.cells.get(cell, 0) for cell in self.cells_of(key)), default=0))
        self.sample(len(blocks))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for block in reversed(blocks):
            if block in self.window:
                self.window.remove(block)
                self.window.append(block)
            else:
                (self.probation if block in self.probation else self.protected).remove(block)
                self.protected.append(block)
        while len(self.protected) > max(1, self.protected_share * (1 - self.share) * self.pool):
            self.probation.append(self.protected.pop(0))
        for block in blocks:
            self.uses[block] = min(15, self.uses[block] + 1)
        self.sample(len(blocks))

    def choose(self) -> int:
        if not self.full:
            narrow = max(self.counters, 20 * self.pool)
            self.full, self.widths = True, [narrow, narrow + 1]
        window = [block for block in self.window if block in self.free]
        main = [block for block in [*self.probation, *self.protected] if block in self.free]
        if not window or not main:
            return (window or main)[0]
        if len(self.window) <= max(1, self.share * self.pool):
            return main[0]
        if self.uses[window[0]] <= self.uses[main[0]]:
            return window[0]
        self.window.remove(window[0])
        self.probation.append(window[0])
        return main[0]

    def leave(self, block: int, key: Hashable) -> None:
        for queue in (self.window, self.probation, self.protected):
            if block in queue:
                queue.remove(block)
        for cell in self.cells_of(key):
            self.cells[cell] = max(self.cells.get(cell, 0), self.uses[block])
        del self.uses[block]

    def cells_of(self, key: Hashable) -> list[tuple[int, int]]:
        """One cell in each of four rows, whose widths have no common divisor."""
        return [(row, hash(key) % width) for row, width in enumerate(self.widths)]

    def sample(self, count: int) -> None:
        self.samples += count
        if self.samples >= 10 * max(self.pool, 64):
            self.samples //= 2
            self.cells = {cell: count // 2 for cell, count in self.cells.items()}
            self.uses = {block: count // 2 for block, count in self.uses.items()}
