"""Policies of the literature once more, in plain lists searched from end to end: slow, short, and sharing no machinery.

Each is written from its paper's description with the one change the cache asks for: only candidates may go, so "the
head" is the first candidate. Victims must be those of the fast ones, in the same order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from cache.access import Access
from cache.evictor.base import Evictor


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


class Slru(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.probation: list[int] = []
        self.protected: list[int] = []

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.probation.append(block)

    def hit(self, block: int, depth: int, access: Access) -> None:
        (self.probation if block in self.probation else self.protected).remove(block)
        self.protected.append(block)
        if len(self.protected) > max(1, 0.8 * self.pool):
            self.probation.append(self.protected.pop(0))

    def choose(self) -> int:
        return self.first(self.probation, self.protected)

    def leave(self, block: int, key: Hashable) -> None:
        (self.probation if block in self.probation else self.protected).remove(block)


class TwoQ(Slow):
    def __init__(self) -> None:
        super().__init__()
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
        return self.first(self.a1in, self.am) if len(self.a1in) > self.pool / 4 else self.first(self.am, self.a1in)

    def leave(self, block: int, key: Hashable) -> None:
        if block in self.am:
            self.am.remove(block)
        else:
            self.a1in.remove(block)
            self.a1out.append(key)
            del self.a1out[: max(0, len(self.a1out) - self.pool // 2)]


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
    def __init__(self) -> None:
        super().__init__()
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
            if small and (not main or len(self.small) >= 0.1 * self.pool):
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


class LruK(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.uses: dict[Hashable, list[int]] = {}
        self.depth: dict[int, int] = {}
        self.ghosts: list[Hashable] = []

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.depth[block] = depth
        if key in self.ghosts:
            self.ghosts.remove(key)
        self.uses.setdefault(key, []).append(access.index)

    def hit(self, block: int, depth: int, access: Access) -> None:
        self.uses[self.key[block]].append(access.index)

    def choose(self) -> int:
        def order(block: int) -> Any:
            uses = self.uses[self.key[block]]
            return (uses[-2] if len(uses) > 1 else -1), uses[-1], -self.depth[block]

        return min(self.free, key=order)

    def leave(self, block: int, key: Hashable) -> None:
        self.ghosts.append(key)
        while len(self.ghosts) > self.pool:
            del self.uses[self.ghosts.pop(0)]


class Gdsf(Slow):
    def __init__(self) -> None:
        super().__init__()
        self.age = 0.0
        self.facts: dict[int, Any] = {}

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.facts[block] = (0, 0, 0, 0)
        self.hit(block, depth, access)

    def hit(self, block: int, depth: int, access: Access) -> None:
        uses = self.facts[block][3] + 1
        self.facts[block] = (self.age + int(uses * (1 + depth / 1600) * 65536), access.index, -depth, uses)

    def choose(self) -> int:
        return min(self.free, key=self.facts.__getitem__)

    def leave(self, block: int, key: Hashable) -> None:
        self.age = max(self.age, self.facts.pop(block)[0])


SLOW = {
    "slru": Slru,
    "two_q": TwoQ,
    "arc": Arc,
    "s3fifo": S3Fifo,
    "sieve": Sieve,
    "lru_k": LruK,
    "gdsf": Gdsf,
}
