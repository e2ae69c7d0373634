"""Least frequently used: fewest requests since insertion, then the least recent, then deeper first. No ageing.

Source: the frequency-count replacement of Belady, "A study of replacement algorithms for a virtual-storage computer",
IBM Systems Journal 1966. O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run

INDEX_BITS = 40
COUNT_SHIFT = INDEX_BITS + DEPTH_BITS
ONE = 1 << COUNT_SHIFT


class Lfu(RankedEvictor):
    """Rank: (requests since insertion, index of the last one, deeper first)."""

    needs_keys = False

    def by_run(self) -> RunPolicy | None:
        return LfuRuns() if type(self) is Lfu else None  # a subclass may rank otherwise

    adapts = False

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        first = ONE + (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        ranks = self.ranks
        recency = (access.index << DEPTH_BITS) + DEEPEST - depth
        for block in blocks:
            ranks[block] = ((ranks[block] >> COUNT_SHIFT) + 1 << COUNT_SHIFT) + recency
            recency -= 1


class LfuRuns(RankedRuns):
    """The same over runs: one rank per run."""

    def inserted(self, run: Run, access: Access, keys: Sequence[Hashable]) -> None:
        run.rank = (1 << INDEX_BITS) + access.index

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            run.rank = ((run.rank >> INDEX_BITS) + 1 << INDEX_BITS) + access.index
