"""LRU-K: the block whose K-th last use lies farthest back goes; one with fewer than K uses goes before all others.

Uses are remembered beyond eviction, so a block that returns in time is not a stranger. Among blocks with fewer than K
uses the least recent goes first. One request is one use, so no period of correlated references is needed.

Source: O'Neil, O'Neil, Weikum, "The LRU-K page replacement algorithm for database disk buffering", SIGMOD 1993.
O(log n) per candidate, O(K) per touched block; ghosts: at most one pool.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

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


class LruKRuns(RankedRuns):
    """The same over runs. `run.rank`: uses since insertion, oldest first and at most K, and per block those before it.

    The uses before insertion come from ghosts, which may differ from block to block. They are dropped once there are K
    since, and with K = 2 that is the next use.
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
            before = None if strangers else [ghosts.recall(key) or () for key in run.keys]
            run.rank = uses, before if self._policy.k > 1 and before and any(before) else None
            self._num_resident += len(run.blocks)
        self._policy.capacity = max(self._policy.capacity, self._num_resident)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        k = self._policy.k
        for run in runs:
            uses, before = run.rank
            uses = (*uses, access.index)[-k:]
            run.rank = uses, before if len(uses) < k else None

    def split(self, head: Run, tail: Run) -> None:
        (uses, before), cut = tail.rank, len(head.blocks)
        if before is not None:
            head.rank, tail.rank = (uses, before[:cut]), (uses, before[cut:])

    def join(self, head: Run, tail: Run) -> bool:
        return head.rank[1] is None and super().join(head, tail)

    def rank_at(self, run: Run, place: int) -> int:
        history = self._history(run, place)
        kth = history[0] + 1 if len(history) == self._policy.k else 0
        return (kth << INDEX_BITS) + history[-1]

    def num_below(self, run: Run, bound: int, most: int) -> int:
        return super().num_below(run, bound, most) if run.rank[1] is None else 0

    def leaving(self, run: Run, count: int) -> None:
        assert run.keys is not None
        self._num_resident -= count
        ghosts, limit, keys = self._policy.ghosts, self._policy.capacity, run.keys[: -count - 1 : -1]
        uses, before = run.rank
        if before is None:
            ghosts.remember_all(keys, uses, limit)
        else:
            for place, key in enumerate(keys, 1):
                ghosts.remember(key, self._history(run, len(run.blocks) - place), limit)

    def removed(self, run: Run) -> None:
        super().removed(run)
        self._num_resident -= len(run.blocks)

    def _history(self, run: Run, place: int) -> History:
        uses, before = run.rank
        return uses if before is None else (*before[place], *uses)[-self._policy.k :]
