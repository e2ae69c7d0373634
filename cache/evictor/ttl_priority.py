"""Priorities per token range, for a while: what the caller marked as precious goes last, until its time is up.

A request may give each range of its prompt a priority from 0 to 100 and a duration (`Access.retention`); the rest has
the request's own priority. A block counts to the range its first token lies in. Lower priority goes first, LRU within
one; when the duration since the last use is over, the block falls back to the default.

Source: NVIDIA TensorRT-LLM, KV cache retention configuration (documentation, 2025).
O(log n) per candidate and per expiry, O(ranges) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from cache.access import Access
from cache.evictor.base import Uncover
from cache.evictor.departing import DepartingEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.run_heap import Entry, is_live
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run

INDEX_BITS = 40
RECENCY_BITS = INDEX_BITS + DEPTH_BITS


class Mark(NamedTuple):
    """Blocks `start` to `stop` have a priority until some time."""

    start: int
    stop: int
    priority: int
    until: float


class TtlPriority(DepartingEvictor):
    """Rank: (priority, last use, deeper first)."""

    needs_keys = False

    def __init__(self, block_size: int, default: int = 35) -> None:
        """`default`: the priority of what nobody marked; `block_size`: tokens per block."""
        if not 0 <= default <= 100 or block_size < 1:
            raise ValueError(f"default must lie in 0..100 and block_size be positive, got {default} and {block_size}")
        super().__init__()
        self.block_size, self.default = block_size, default
        self._expiries: list[tuple[float, int, int]] = []
        self._now = 0.0

    def by_run(self) -> RunPolicy | None:
        return TtlPriorityRuns(self) if type(self) is TtlPriority else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        self._now = max(self._now, access.time)
        own = access.priority or self.default
        first = (own << RECENCY_BITS) + (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))
        marked: dict[int, Mark] = {}
        for mark in self.marks(access):
            marked.update(dict.fromkeys(blocks[max(mark.start - depth, 0) : max(mark.stop - depth, 0)], mark))
        for block, mark in marked.items():
            rank = self.ranks[block] & (1 << RECENCY_BITS) - 1 | mark.priority << RECENCY_BITS
            self.ranks[block] = rank
            if mark.until < inf:
                heappush(self._expiries, (mark.until, block, rank))
        if len(self._expiries) > 2 * len(self.ranks) + 64:
            self._expiries = sorted(entry for entry in self._expiries if self.ranks.get(entry[1]) == entry[2])

    def marks(self, access: Access) -> list[Mark]:
        """What a request marks, in blocks; a later mark takes the place of an earlier one."""
        size = self.block_size
        return [
            Mark(
                -(-mark.start // size),
                DEEPEST if mark.stop is None else -(-mark.stop // size),
                mark.priority,
                inf if mark.seconds is None else access.time + mark.seconds,
            )
            for mark in access.retention
        ]

    def victim(self) -> int:
        self._expire()
        return super().victim()

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        self._expire()
        return super().victims(count, uncover)

    def departed(self, block: int, chosen: bool) -> None:
        return

    def _expire(self) -> None:
        """Blocks whose time is up, and that nobody used since, get the default priority."""
        while self._expiries and self._expiries[0][0] <= self._now:
            _, block, rank = heappop(self._expiries)
            if self.ranks.get(block) == rank:
                self.rerank(block, rank & (1 << RECENCY_BITS) - 1 | self.default << RECENCY_BITS)


class TtlPriorityRuns(RankedRuns):
    """The same over runs. `run.rank`: (priority, last use) of what nobody marked, and the marks of the last request."""

    def __init__(self, policy: TtlPriority) -> None:
        super().__init__()
        self._policy = policy
        self._expiries: list[tuple[float, int, Entry]] = []
        """Candidates whose last block falls back to the default."""
        self._now = self._expired = 0.0

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self.accessed(runs, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        self._now = max(self._now, access.time)
        own = (access.priority or self._policy.default) << INDEX_BITS
        rank = own + access.index, self._policy.marks(access) if access.retention else ()
        for run in runs:
            run.rank = rank

    def rank_at(self, run: Run, place: int) -> int:
        rank, marks = run.rank
        mark = _mark_at(marks, run.depth + place) if marks else None
        if mark is None:
            return int(rank)
        priority = mark.priority if mark.until > self._expired else self._policy.default
        return (priority << INDEX_BITS) + int(rank & (1 << INDEX_BITS) - 1)

    def num_below(self, run: Run, bound: int, most: int) -> int:
        return 0 if run.rank[1] else super().num_below(run, bound, most)

    def offer(self, run: Run) -> None:
        super().offer(run)
        marks = run.rank[1]
        mark = _mark_at(marks, run.depth + len(run.blocks) - 1) if marks else None
        if mark is not None and self._expired < mark.until < inf:
            if len(self._expiries) > 2 * len(self.heap) + 64:
                self._expiries = sorted(expiry for expiry in self._expiries if is_live(expiry[2]))
            heappush(self._expiries, (mark.until, run.entry[3], run.entry))

    def victims(self, count: int, trim: Trim) -> None:
        self._expired = self._now
        while self._expiries and self._expiries[0][0] <= self._now:
            entry = heappop(self._expiries)[2]
            if is_live(entry):
                self.rerank(entry[4], entry[4].rank)
        super().victims(count, trim)


def _mark_at(marks: Sequence[Mark], depth: int) -> Mark | None:
    """The mark of the block at this depth: the last one given."""
    return next((mark for mark in reversed(marks) if mark.start <= depth < mark.stop), None)
