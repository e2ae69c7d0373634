"""Most recently used first: for loops larger than the pool, where LRU evicts each block just before its next use.

Source: Chou and DeWitt, "An evaluation of buffer management strategies for relational database systems", VLDB 1985.
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run


class Mru(RankedEvictor):
    """Rank: the newest request first, deeper first within it."""

    adapts = False
    needs_keys = False

    def by_run(self) -> RunPolicy | None:
        return MruRuns() if type(self) is Mru else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        first = (-access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))


class MruRuns(RankedRuns):
    """The same over runs: one rank per run."""

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self.accessed(runs, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            run.rank = -access.index
