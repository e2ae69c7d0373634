"""Hazard: evict the run of blocks whose next use is worth least waiting for. PageLab's own policy.

A *run* is blocks of one chain with one history; a hit on part of it splits it. What a serving system sees of a run says
much about its future: which turn of a conversation it is (runs on its path), how often and after what gap the run was
used, how many tokens the last request added. From all runs, resident or recently gone, `HazardModel` learns the rate of
use by these traits and age, and says what waiting is worth; LRU, in contrast, only ever looks at the age. Runs used
often (system prompts) are told by their gap alone. A run leaves from its end, block by block, the least worthy first.

Sources: see `hazard_model`. Ranks are renewed once an eighth of the candidates has changed, the model when requests
have grown by a tenth: O(log n) amortised per candidate, O(1) per touched block. Ghosts: one key per run that left,
at most one pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import log2

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.base import Evictor, Uncover
from cache.evictor.hazard_model import HazardModel, Kind

FIRST_FIT, LONGEST_PAUSE, GROWTH = 50, 1000, 0.1  # requests, requests, share of the requests so far
FRESHNESS = 8
OFTEN = 8
"""Uses from which on a run's gap says more than anything else."""


class Visit:
    """One request: when it came, how many runs its path has, how many tokens the last of them and the rest make up."""

    __slots__ = ("index", "num_runs", "num_tokens", "start", "time")

    def __init__(self, index: int, time: float, num_tokens: int) -> None:
        self.index, self.time, self.num_tokens = index, time, num_tokens
        self.num_runs = self.start = 0


class Run:
    """Blocks with one history; a ghost has none left, but knows how many left last."""

    __slots__ = ("blocks", "count", "free", "gap", "ghost", "kind", "length", "visit")

    def __init__(self, blocks: dict[int, None], visit: Visit, count: int, gap: float | None) -> None:
        self.blocks, self.visit, self.count, self.gap = blocks, visit, count, gap
        self.free: dict[int, None] = {}
        self.kind: Kind | None = None
        self.ghost: tuple[Hashable, Run] | None = None
        self.length = len(blocks)


class Hazard(Evictor):
    """Runs by what they are worth."""

    def __init__(self, half_life: float = 20_000.0) -> None:
        """`half_life`: requests after which what was learned counts half."""
        if half_life <= 0:
            raise ValueError(f"half_life must be more than 0 requests, got {half_life}")
        self.half_life = half_life
        self.model = HazardModel()
        self._run_of: dict[int, Run] = {}
        self._keys: dict[int, Hashable] = {}
        self._ghosts: OrderedDict[Hashable, Run] = OrderedDict()
        self._runs: dict[Run, None] = {}
        self._free: dict[Run, None] = {}
        self._heap: list[tuple[float, int, int, Run]] = []
        self._next_ranking = self._tie = 0
        self._visit = Visit(-1, 0.0, 0)
        self._timed = False
        self._tokens_per_block = 1 << 30
        self._capacity = self._requests = self._fitted = 0
        self._next_fit = FIRST_FIT

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self._run_of, blocks)
        visit = self._visited(access)
        self._tokens_per_block = min(self._tokens_per_block, access.num_tokens // (depth + len(blocks)))
        self._keys.update(zip(blocks, keys, strict=True))
        for start, stop, ghost in self._returning(keys):
            count, gap = 1, None
            if ghost is not None:
                gap = self._ended(ghost, used=True)
                count += ghost.count
            run = Run(dict.fromkeys(blocks[start:stop]), visit, count, gap)
            self._runs[run] = None
            self._run_of.update(dict.fromkeys(run.blocks, run))
            visit.num_runs += 1
            visit.start = depth + start
        self._capacity = max(self._capacity, len(self._run_of))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        visit, i = self._visited(access), 0
        while i < len(blocks):
            run, first = self._run_of[blocks[i]], i
            while i < len(blocks) and self._run_of[blocks[i]] is run:
                i += 1
            gap = self._ended(run, used=True)
            if i - first < len(run.blocks):
                run = self._split(run, blocks[first:i])
            run.count += 1
            if run.gap is not None and run.count > OFTEN:
                gap = run.gap + (gap - run.gap) / OFTEN  # a popular run is told by its mean gap
            run.visit, run.gap, run.kind, run.ghost = visit, gap, None, None
            visit.num_runs += 1
            visit.start = depth + first

    def evictable(self, block: int) -> None:
        run = self._run_of[block]
        if block in run.free:
            raise PolicyError(f"block {block} became evictable twice")
        run.free[block] = None
        if len(run.free) == 1:
            self._free[run] = None
            self._push(run)

    def pinned(self, block: int) -> None:
        run = self._run_of.get(block)
        if run is None or block not in run.free:
            raise PolicyError(f"block {block} was pinned but is no candidate")
        self._withdraw(run, block)

    def removed(self, block: int) -> None:
        run = self._run_of.pop(block, None)
        if run is not None:
            del self._keys[block], run.blocks[block]
            if block in run.free:
                self._withdraw(run, block)
            if not run.blocks:
                del self._runs[run]

    def victim(self) -> int:
        return self.victims(1, lambda block: -1)[0]

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        self._renew()
        chosen: list[int] = []
        while len(chosen) < count:
            run = self._lowest()
            block, first = next(reversed(run.free)), len(chosen)
            while True:
                key = self._keys[block]
                self.removed(block)
                chosen.append(block)
                parent = uncover(block)
                if parent < 0 or len(chosen) == count or self._run_of[parent] is not run:
                    break
                block = parent
            self._bury(run, key, len(chosen) - first)
            if parent >= 0:
                self.evictable(parent)
        return chosen

    def candidates(self) -> set[int]:
        return {block for run in self._free for block in run.free}

    def num_ghosts(self) -> int:
        return len(self._ghosts)

    def _visited(self, access: Access) -> Visit:
        """The record of a request, begun with its first event; arrival times count as soon as there are any."""
        if access.index != self._visit.index:
            self._timed = self._timed or access.time > 0
            self._visit = Visit(access.index, access.time if self._timed else float(access.index), access.num_tokens)
            self._requests += 1
        return self._visit

    def _returning(self, keys: Sequence[Hashable]) -> Iterator[tuple[int, int, Run | None]]:
        """Cut new blocks where a ghost begins or ends: (start, stop, the ghost that returns or None)."""
        start, i = 0, 0
        if self._ghosts.keys().isdisjoint(keys):
            yield 0, len(keys), None
            return
        while i < len(keys):
            ghost = self._ghosts.pop(keys[i], None)
            if ghost is None:
                i += 1
                continue
            if start < i:
                yield start, i, None
            stop = min(i + ghost.length, len(keys))
            yield i, stop, ghost
            start = i = stop
        if start < len(keys):
            yield start, len(keys), None

    def _split(self, run: Run, blocks: Sequence[int]) -> Run:
        """The blocks a request used become a run of their own; the rest waits on."""
        used = Run(dict.fromkeys(blocks), run.visit, run.count, run.gap)
        for block in blocks:
            del run.blocks[block]
            self._run_of[block] = used
        self._runs[used] = None
        return used

    def _ended(self, run: Run, used: bool) -> float:
        """A stay of the run is over; returns how long it was."""
        age = max(self._visit.time - run.visit.time, 0.0)
        self.model.observe(self._kind(run), age, used)
        return age

    def _kind(self, run: Run) -> Kind:
        """Stratum: how often it was used; traits: turn, use count and gap, tokens the request added."""
        if run.kind is None:
            gap = -1 if run.gap is None else int(1 + run.gap).bit_length()
            uses = (1 + run.count).bit_length() - 1
            if run.count >= OFTEN:
                run.kind = (("often", int(2 * log2(1 + (run.gap or 0.0)))), None, None, None)
            else:
                visit = run.visit
                added = max(visit.num_tokens - visit.start * self._tokens_per_block, 0)
                run.kind = (min(uses, 3), min(visit.num_runs, 10), (uses, gap), (1 + added).bit_length())
        return run.kind

    def _ranked(self, run: Run) -> tuple[float, int, int, Run]:
        visit = run.visit
        self._tie += 1
        worth = self.model.worth(self._kind(run), self._visit.time - visit.time)
        return worth, visit.index, -self._tie, run

    def _push(self, run: Run) -> None:
        if len(self._heap) > 2 * len(self._free) + 64:
            self._rank_all()
        else:
            heappush(self._heap, self._ranked(run))

    def _rank_all(self) -> None:
        self._heap = [self._ranked(run) for run in self._free]
        heapify(self._heap)
        self._next_ranking = self._requests + len(self._free) // FRESHNESS

    def _renew(self) -> None:
        """Fit the model and rank the candidates again, where that is due."""
        if self._requests >= self._next_fit:
            self._fit()
            self._rank_all()
        elif self._requests > self._next_ranking:
            self._rank_all()

    def _lowest(self) -> Run:
        """The candidate worth least. Raises PolicyError where there is none."""
        heap = self._heap
        while heap:
            _, index, _, run = heap[0]
            if run.free and index == run.visit.index:
                return run
            heappop(heap)
        raise self.nothing_to_choose()

    def _withdraw(self, run: Run, block: int) -> None:
        del run.free[block]
        if not run.free:
            del self._free[run]

    def _bury(self, run: Run, key: Hashable, count: int) -> None:
        """`count` blocks left the end of the run; what left of it so far is known by the key of its first block."""
        if run.ghost is not None and self._ghosts.get(run.ghost[0]) is run.ghost[1]:
            ghost = self._ghosts.pop(run.ghost[0])
        else:
            ghost = Run({}, run.visit, run.count, run.gap)
            ghost.kind = self._kind(run)
        ghost.length += count
        run.ghost = (key, ghost)
        self._ghosts[key] = ghost
        while len(self._ghosts) > self._capacity:
            self._ended(self._ghosts.popitem(last=False)[1], used=False)

    def _fit(self) -> None:
        now = self._visit.time
        waiting = [
            (self._kind(run), max(now - run.visit.time, 0.0)) for runs in (self._runs, self._ghosts.values()) for run in runs
        ]
        self.model.fit(waiting, 0.5 ** ((self._requests - self._fitted) / self.half_life))
        self._fitted = self._requests
        self._next_fit = self._requests + min(max(int(GROWTH * self._requests), FIRST_FIT), LONGEST_PAUSE)
