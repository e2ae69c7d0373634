"""Queues in lists: SLRU, 2Q, ARC, S3-FIFO, SIEVE."""

from __future__ import annotations

from collections.abc import Hashable

from cache.access import Access
from support.slow_policies.base import Slow


class Slru(Slow):
    def __init__(self, protected: float = 0.8) -> None:
        super().__init__()
        self.share = protected
        self.probation: list[int] = []
        self.protected: list[int] = []

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.probation.append(block)

    def hit(self, block: int, depth: int, access: Access) -> None:
        (self.probation if block in self.probation else self.protected).remove(block)
        self.protected.append(block)
        if len(self.protected) > max(1, self.share * self.pool):
            self.probation.append(self.protected.pop(0))

    def choose(self) -> int:
        return self.first(self.probation, self.protected)

    def leave(self, block: int, key: Hashable) -> None:
        (self.probation if block in self.probation else self.protected).remove(block)


class TwoQ(Slow):
    def __init__(self, fifo: float = 0.25, remembered: float = 0.5) -> None:
        super().__init__()
        self.fifo, self.remembered = fifo, remembered
        self.a1in: list[int] = []
        self.a1out: list[Hashable] = []
        self.am: list[int] = []

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        if key in self.a1out:
            self.a1out.remove(key)
            self.am.append(block)
        else:
            self.a1in.append(block)

    def hit(self, block: int, depth: int, access: Access) -> None:
        if block in self.am:
            self.am.remove(block)
            self.am.append(block)

    def choose(self) -> int:
        over = len(self.a1in) > self.fifo * self.pool
        return self.first(self.a1in, self.am) if over else self.first(self.am, self.a1in)

    def leave(self, block: int, key: Hashable) -> None:
        if block in self.am:
            self.am.remove(block)
        else:
            self.a1in.remove(block)
            self.a1out.append(key)
            del self.a1out[: max(0, len(self.a1out) - int(self.remembered * self.pool))]


class Arc(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.t1: list[int] = []
        self.t2: list[int] = []
        self.b1: list[Hashable] = []
        self.b2: list[Hashable] = []
        self.p = 0.0

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        if key in self.b1:
            self.p = min(self.pool, self.p + max(1, len(self.b2) / len(self.b1)))
            self.b1.remove(key)
            self.t2.append(block)
        elif key in self.b2:
            self.p = max(0, self.p - max(1, len(self.b1) / len(self.b2)))
            self.b2.remove(key)
            self.t2.append(block)
        else:
            self.t1.append(block)

    def hit(self, block: int, depth: int, access: Access) -> None:
        (self.t1 if block in self.t1 else self.t2).remove(block)
        self.t2.append(block)

    def choose(self) -> int:
        return self.first(self.t1, self.t2) if len(self.t1) > self.p else self.first(self.t2, self.t1)

    def leave(self, block: int, key: Hashable) -> None:
        resident, ghosts = (self.t1, self.b1) if block in self.t1 else (self.t2, self.b2)
        resident.remove(block)
        ghosts.append(key)
        while len(self.t1) + len(self.b1) > self.pool and self.b1:
            self.b1.pop(0)
        while len(self.b1) + len(self.b2) > self.pool:
            self.b2.pop(0)


class S3Fifo(Slow):
    def __init__(self, small: float = 0.1) -> None:
        super().__init__()
        self.share = small
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghost: list[Hashable] = []
        self.hits: dict[int, int] = {}

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.hits[block] = 0
        if key in self.ghost:
            self.ghost.remove(key)
            self.main.append(block)
        else:
            self.small.append(block)

    def hit(self, block: int, depth: int, access: Access) -> None:
        self.hits[block] = min(3, self.hits[block] + 1)

    def choose(self) -> int:
        while True:
            small = [block for block in self.small if block in self.free]
            main = [block for block in self.main if block in self.free]
            if small and (not main or len(self.small) >= self.share * self.pool):
                if self.hits[small[0]] < 2:
                    return small[0]
                self.small.remove(small[0])
                self.main.append(small[0])
                self.hits[small[0]] = 0
            else:
                if self.hits[main[0]] == 0:
                    return main[0]
                self.main.remove(main[0])
                self.main.append(main[0])
                self.hits[main[0]] -= 1

    def leave(self, block: int, key: Hashable) -> None:
        if block in self.main:
            self.main.remove(block)
            return
        self.small.remove(block)
        self.ghost.append(key)
        del self.ghost[: max(0, len(self.ghost) - self.pool)]


class Sieve(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.fifo: list[int] = []
        self.visited: set[int] = set()
        self.hand = 0

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.fifo.append(block)

    def hit(self, block: int, depth: int, access: Access) -> None:
        self.visited.add(block)

    def choose(self) -> int:
        while True:
            if not any(block in self.free for block in self.fifo[self.hand :]):
                self.hand = 0
            block = self.fifo[self.hand]
            if block in self.free:
                if block not in self.visited:
                    return block
                self.visited.remove(block)
            self.hand += 1

    def leave(self, block: int, key: Hashable) -> None:
        self.fifo.remove(block)
        self.visited.discard(block)
        if self.hand == len(self.fifo):
            self.hand = 0
