"""LRU-K: the block whose K-th last use lies farthest back goes; one with fewer than K uses goes before all others.

Uses are remembered beyond eviction, so a block that returns in time is not a stranger. Among blocks with fewer than K
uses the least recent goes first. One request is one use, so no period of correlated references is needed.

Source: O'Neil, O'Neil, Weikum, "The LRU-K page replacement algorithm for database disk buffering", SIGMOD 1993.
O(log n) per candidate, O(K) per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.remembering import RememberingEvictor
from cache.evictor.runs import RunPolicy
from cache.run import Run

INDEX_BITS = 40
History = tuple[int, ...]
"""Indices of the last K uses, oldest first."""


class LruK(RememberingEvictor[History]):
    """Facts: its history. Rank: (K-th last use or none, last use, deeper first)."""

    def __init__(self, k: int = 2) -> None:
        if k < 1:
            raise ValueError(f"k must be 1 or more, got {k}")
        super().__init__()
        self.k = k

    def by_run(self) -> RunPolicy | None:
        return LruKRuns(self) if type(self) is LruK else None  # a subclass may rank otherwise

    def used(self, block: int, facts: History | None, depth: int, access: Access) -> None:
        uses = self.facts[block] = (*(facts or ()), access.index)[-self.k :]
        kth = uses[0] + 1 if len(uses) == self.k else 0
        self.ranks[block] = ((kth << INDEX_BITS) + access.index << DEPTH_BITS) + DEEPEST - depth


Past = list[tuple[int, History]]
"""Uses before insertion: (depth behind the last block of a stretch, its uses), front to back."""


class LruKRuns(RankedRuns):
    """The same over runs. `run.rank`: uses since insertion, oldest first and at most K, and those before it.

    The uses before insertion come from ghosts, which may differ from stretch to stretch. They are dropped once there
    are K since, and with K = 2 that is the next use.
    """

    needs_keys = True

    def __init__(self, policy: LruK) -> None:
        super().__init__()
        self._policy = policy
        self._num_resident = 0

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        ghosts, uses = self._policy.ghosts, (access.index,)
        strangers = ghosts.knows_none_of(keys)
        for run in runs:
            assert run.keys is not None
            past: Past | None = None
            if not strangers:
                past = [(run.depth + stop, known or ()) for stop, known in ghosts.recall_all(run.keys)]
            run.rank = uses, past if past and self._policy.k > 1 and any(known for _, known in past) else None
            self._num_resident += len(run.blocks)
        self._policy.capacity = max(self._policy.capacity, self._num_resident)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        k = self._policy.k
        for run in runs:
            uses, past = run.rank
            uses = (*uses, access.index)[-k:]
            run.rank = uses, past if len(uses) < k else None

    def split(self, head: Run, tail: Run) -> None:
        uses, past = tail.rank
        if past is not None:
            head.rank = uses, past[: _place(past, tail.depth - 1) + 1]
            tail.rank = uses, past[_place(past, tail.depth) :]

    def join(self, head: Run, tail: Run) -> bool:
        return head.rank[1] is None and super().join(head, tail)

    def rank_at(self, run: Run, place: int) -> int:
        uses, past = run.rank
        return self._rank(uses if past is None else self._history(uses, past[_place(past, run.depth + place)][1]))

    def num_below(self, run: Run, bound: int, most: int) -> int:
        if run.rank[1] is None:
            return super().num_below(run, bound, most)
        below = 0
        for count, history in self._stretches(run, most):
            if self._rank(history) >= bound:
                break
            below += count
        return below

    def leaving(self, run: Run, count: int) -> None:
        assert run.keys is not None
        self._num_resident -= count
        keys, start = run.keys[: -count - 1 : -1], 0
        for length, history in self._stretches(run, count):
            self._policy.ghosts.remember_all(keys[start : start + length], history, self._policy.capacity)
            start += length

    def removed(self, run: Run) -> None:
        super().removed(run)
        self._num_resident -= len(run.blocks)

    def _stretches(self, run: Run, most: int) -> Iterator[tuple[int, History]]:
        """The last `most` blocks of a run, tail first: how many in a row have which uses."""
        uses, past = run.rank
        if past is None:
            yield most, uses
            return
        stop = run.depth + len(run.blocks)
        start = stop - most
        for i in range(_place(past, stop - 1), -1, -1):
            begin = max(past[i - 1][0] if i else start, start)
            if begin < stop:
                yield stop - begin, self._history(uses, past[i][1])
                stop = begin
            if stop == start:
                return

    def _history(self, uses: History, before: History) -> History:
        return (*before, *uses)[-self._policy.k :]

    def _rank(self, history: History) -> int:
        kth = history[0] + 1 if len(history) == self._policy.k else 0
        return (kth << INDEX_BITS) + history[-1]


def _place(past: Past, depth: int) -> int:
    """Of the stretch in which the block at this depth lies."""
    return bisect_right(past, depth, key=_end)


def _end(stretch: tuple[int, History]) -> int:
    return stretch[0]
