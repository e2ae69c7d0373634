"""Policies that go by what a request says of itself: session, priorities for a while, category."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import exp

from cache.access import Access
from support.slow_policies.base import Slow

FINEST = 2**20
"""Parts of a second in which gaps are added up."""


class Session(Slow):
    """Every block remembers all its users; what one session alone has used may be declared unwanted."""

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[int, set[str | None]] = {}
        self.last: dict[int, tuple[int, int]] = {}
        self.wanted: dict[int, bool] = {}
        self.superseded: set[int] = set()

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.users[block] = set()
        self.hit(block, depth, access)

    def hit(self, block: int, depth: int, access: Access) -> None:
        self.users[block].add(access.session)
        if block in self.superseded:  # and gone back to: it has proved itself, as if others had used it
            self.users[block].add(None)
        self.last[block] = access.index, -depth
        self.wanted[block] = not (access.last_turn and self.belongs(block, access.session))

    def belongs(self, block: int, session: str | None) -> bool:
        return session is not None and self.users[block] == {session}

    def evictable(self, block: int) -> None:
        super().evictable(block)
        for session in self.users[block] if len(self.users[block]) == 1 else ():
            for other in self.users:
                if self.belongs(other, session) and self.last[other][0] < self.last[block][0]:
                    self.wanted[other] = False
                    self.superseded.add(other)

    def uncovered(self, block: int) -> None:
        self.free.append(block)  # a turn ends when its last block is nobody's, not when that is evicted

    def choose(self) -> int:
        return min(self.free, key=lambda block: (self.wanted[block], self.last[block]))

    def leave(self, block: int, key: Hashable) -> None:
        del self.users[block], self.last[block], self.wanted[block]
        self.superseded.discard(block)


class TtlPriority(Slow):
    """A range's priority holds for the blocks that begin in it, until its time is up."""

    def __init__(self, block_size: int, default: int = 35) -> None:
        super().__init__()
        self.block_size, self.default = block_size, default
        self.now = 0.0
        self.uses: dict[int, tuple[int, float, int, int]] = {}

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        self.hit(block, depth, access)

    def hit(self, block: int, depth: int, access: Access) -> None:
        self.now = max(self.now, access.time)
        priority, until = access.priority or self.default, float("inf")
        for mark in access.retention:
            if mark.start <= depth * self.block_size < (float("inf") if mark.stop is None else mark.stop):
                priority = mark.priority
                until = float("inf") if mark.seconds is None else access.time + mark.seconds
        self.uses[block] = priority, until, access.index, -depth

    def choose(self) -> int:
        def order(block: int) -> tuple[int, int, int]:
            priority, until, *recency = self.uses[block]
            return (priority if until > self.now else self.default, *recency)

        return min(self.free, key=order)

    def leave(self, block: int, key: Hashable) -> None:
        del self.uses[block]


class WorkloadAware(Slow):
    """Per category uses, reuses and the sum of gaps; halved once they hold the evidence of `memory` blocks."""

    def __init__(self, horizon: float = 300.0, memory: float = 50_000) -> None:
        super().__init__()
        self.horizon, self.memory = horizon, memory
        self.now = 0.0
        self.sums: dict[str | None, list[int]] = {}
        self.uses: dict[int, tuple[str | None, float, tuple[int, int]]] = {}

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(blocks, depth, access, keys)
        self.use(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for block in blocks:
            category, time, _ = self.uses[block]
            self.sums[category][1] += 1
            self.sums[category][2] += max(int((access.time - time) * FINEST), 0)
        self.use(blocks, depth, access)

    def use(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        self.now = max(self.now, access.time)
        for i, block in enumerate(blocks):
            self.uses[block] = access.category, access.time, (access.index, -depth - i)
        sums = self.sums.setdefault(access.category, [0, 0, 0])
        sums[0] += len(blocks)
        if sums[0] > self.memory:
            sums[:] = [part // 2 for part in sums]

    def chance(self, category: str | None, age: float) -> float:
        uses, reuses, gaps = self.sums[category]
        r = min((reuses + 4) / (uses + 8), 0.999)
        m = max((gaps / FINEST + 4 * self.horizon) / (reuses + 4), 1e-6)
        return r * exp(-age / m) * (1 - exp(-self.horizon / m)) / (1 - r + r * exp(-age / m))

    def enter(self, block: int, key: Hashable, depth: int, access: Access) -> None:
        return

    def choose(self) -> int:
        heads = []
        for category in self.sums:
            waiting = [block for block in self.free if self.uses[block][0] == category]
            heads += [min(waiting, key=lambda block: self.uses[block][2])] if waiting else []
        return min(heads, key=lambda block: self.chance(self.uses[block][0], self.now - self.uses[block][1]))

    def leave(self, block: int, key: Hashable) -> None:
        del self.uses[block]
