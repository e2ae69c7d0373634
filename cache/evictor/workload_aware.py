"""Workload-aware: evict from the category whose oldest block is least likely to be used again within the horizon.

Per category (chat, API, agent …) two numbers are learned: which share of blocks is used again, and after how long on
average. With exponential gaps, the chance that a block of age a is used within the next h seconds is
r·e^(−a/m)·(1 − e^(−h/m)) / (1 − r + r·e^(−a/m)). Within a category the least recent block goes first, deeper first.

Source: Wang et al., "KVCache cache in the wild: characterizing and optimizing KVCache cache at a large cloud provider",
USENIX ATC 2025. O(log n + categories) per victim, O(1) per touched block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from math import exp, inf

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS
from cache.evictor.run_heap import RunHeap
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run

PRIOR = 8.0
"""Blocks' worth of belief that half are used again, after one horizon."""
MEMORY = 50_000
"""Blocks of a category after which what was learned counts half."""
TICKS = 1 << 20
"""Of gaps, per second."""


class Reuse:
    """What is known of reuse in a category. In whole numbers, so that it does not matter who adds them up."""

    def __init__(self) -> None:
        self.uses = self.reuses = self.gaps = 0
        self._known: tuple[float, float, float, float] | None = None
        """Horizon, share that is used again, mean gap, chance that one of these is used soon; until more is learned."""

    def reused(self, count: int, gap: float) -> None:
        """Blocks of the category were used again, `gap` seconds after their last use."""
        self._known = None
        self.reuses += count
        self.gaps += count * max(int(gap * TICKS), 0)

    def used(self, count: int) -> None:
        """Blocks were used by a request of the category; what was learned is halved once it is plenty."""
        self._known = None
        self.uses += count
        if self.uses > MEMORY:
            self.uses, self.reuses, self.gaps = self.uses // 2, self.reuses // 2, self.gaps // 2

    def chance(self, age: float, horizon: float) -> float:
        """That a block unused for `age` seconds is used within the next `horizon` seconds."""
        known = self._known
        if known is None or known[0] != horizon:
            share = min((self.reuses + PRIOR / 2) / (self.uses + PRIOR), 0.999)
            mean = max((self.gaps / TICKS + PRIOR / 2 * horizon) / (self.reuses + PRIOR / 2), 1e-6)
            self._known = known = horizon, share, mean, 1 - exp(-horizon / mean)
        _, share, mean, soon = known
        alive = share * exp(-age / mean)
        return alive * soon / (1 - share + alive)


class Category(CandidateQueue):
    """A queue in the order of last use, and what is known of reuse in it."""

    def __init__(self) -> None:
        super().__init__()
        self.reuse = Reuse()
        self.head = -1, -1, 0.0
        """As long as there is no other event: its number, the first candidate or -1, and its chance."""

    def offer(self, block: int) -> None:
        super().offer(block)
        self.head = -1, -1, 0.0

    def drop(self, block: int) -> None:
        super().drop(block)
        self.head = -1, -1, 0.0


class WorkloadAware(QueueEvictor):
    """One queue per category; blocks without one share a queue."""

    def __init__(self, horizon: float = 300.0) -> None:
        """`horizon`: seconds within which a reuse is worth waiting for."""
        if horizon <= 0:
            raise ValueError(f"horizon must be more than 0 seconds, got {horizon}")
        super().__init__(0)
        self.horizon = horizon
        self.categories: dict[str | None, Category] = {}
        self._last: dict[int, float] = {}
        self._now, self._event = 0.0, 0

    def by_run(self) -> RunPolicy | None:
        return WorkloadAwareRuns(self.horizon) if type(self) is WorkloadAware else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self._set_clock(blocks, depth, access)
        super().inserted(blocks, depth, access, keys)
        self._used(blocks, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        alike = Counter(zip(map(self.place.__getitem__, blocks), map(self._last.__getitem__, blocks), strict=True))
        for (category, last), count in alike.items():
            assert isinstance(category, Category)
            category.reuse.reused(count, access.time - last)
        self._set_clock(blocks, depth, access)
        super().accessed(blocks, depth, access)
        self._used(blocks, access)

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self._category(access)

    def touch(self, block: int, access: Access) -> None:
        self.enqueue(block, self._category(access))

    def choose(self) -> int:
        best, least, now = -1, inf, self._event
        for category in self.categories.values():
            event, block, chance = category.head
            if event != now:
                block = category.first_candidate()
                chance = category.reuse.chance(self._now - self._last[block], self.horizon) if block >= 0 else inf
                category.head = now, block, chance
            if block >= 0 and (best < 0 or chance < least):
                best, least = block, chance
        return best

    def pinned(self, block: int) -> None:
        super().pinned(block)
        self._event += 1

    def removed(self, block: int) -> None:
        super().removed(block)
        self._last.pop(block, None)

    def _category(self, access: Access) -> Category:
        category = self.categories.get(access.category)
        if category is None:
            category = self.categories[access.category] = Category()
        return category

    def _used(self, blocks: Sequence[int], access: Access) -> None:
        self._now = max(self._now, access.time)
        self._event += 1
        self._last.update(dict.fromkeys(blocks, access.time))
        self._category(access).reuse.used(len(blocks))

    def _set_clock(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        """Let the blocks, deepest first, take the places of this request: by its index, then by depth."""
        self._clock = (access.index << DEPTH_BITS) + DEEPEST - depth - len(blocks)


class WorkloadAwareRuns(RunPolicy):
    """The same over runs, a heap per category. `run.rank`: last use, its time, the category."""

    def __init__(self, horizon: float) -> None:
        self.horizon = horizon
        self.categories: dict[str | None, tuple[RunHeap, Reuse]] = {}
        self._now = 0.0

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self._now = max(self._now, access.time)
        if access.category not in self.categories:
            self.categories[access.category] = RunHeap(), Reuse()
        rank, count = (access.index, access.time, access.category), 0
        for run in runs:
            run.rank = rank
            count += len(run.blocks)
        self.categories[access.category][1].used(count)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            _, time, category = run.rank
            self.categories[category][1].reused(len(run.blocks), access.time - time)
        self.inserted(runs, access, ())

    def evictable(self, run: Run) -> None:
        self._heap(run).push(run, run.rank[0])

    def pinned(self, run: Run) -> None:
        self._heap(run).drop(run)

    def removed(self, run: Run) -> None:
        if run.entry is not None:
            self._heap(run).drop(run)

    def victims(self, count: int, trim: Trim) -> None:
        while count:
            heap = self._choose()
            run = heap.pop()
            assert run is not None
            alone = not heap.entries or run.rank[0] < heap.entries[0][0]  # else another branch of the same request
            going = min(count, len(run.blocks)) if alone else 1
            count -= going
            rest = trim(run, going)
            if rest is not None:
                self.evictable(rest)

    def candidates(self) -> set[int]:
        return set[int]().union(*(heap.tails() for heap, _ in self.categories.values()))

    def _heap(self, run: Run) -> RunHeap:
        return self.categories[run.rank[2]][0]

    def _choose(self) -> RunHeap:
        best, least = None, inf
        for heap, reuse in self.categories.values():
            run = heap.first()
            if run is None:
                continue
            chance = reuse.chance(self._now - run.rank[1], self.horizon)
            if best is None or chance < least:
                best, least = heap, chance
        if best is None:
            raise PolicyError(f"{type(self).__name__} was asked for a victim and has no candidate")
        return best
