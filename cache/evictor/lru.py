"""Least recently used: the candidate whose last request is longest ago, deeper first within one request.

Source: Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal 1970.
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run


class Lru(RankedEvictor):
    """Rank: (index of the last request, deeper first)."""

    needs_keys = False

    def by_run(self) -> RunPolicy | None:
        return LruRuns() if type(self) is Lru else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        first = (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))

    def decision(self, rank: int) -> dict[str, int | float]:
        return {"last_request": rank >> DEPTH_BITS, "depth": DEEPEST - (rank & DEEPEST)}


class LruRuns(RankedRuns):
    """The same over runs: one rank per run."""

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self.accessed(runs, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        now = access.index
        for run in runs:
            run.rank = now

    def just_grows(self, run: Run, access: Access) -> bool:
        return True  # its rank is that of the last request
