"""First in, first out: the candidate inserted longest ago, however often it was used since.

O(log n) per candidate, O(1) per inserted block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run


class Fifo(RankedEvictor):
    """Rank: (index of the inserting request, deeper first)."""

    needs_keys = False

    def by_run(self) -> RunPolicy | None:
        return FifoRuns() if type(self) is Fifo else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        first = (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        return

    def decision(self, rank: int) -> dict[str, int | float]:
        return {"inserted": rank >> DEPTH_BITS, "depth": DEEPEST - (rank & DEEPEST)}


class FifoRuns(RankedRuns):
    """The same over runs: one rank per run."""

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        for run in runs:
            run.rank = access.index

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        return

    def just_grows(self, run: Run, access: Access) -> bool:
        return bool(run.rank == access.index)
