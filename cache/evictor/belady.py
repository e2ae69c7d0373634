"""The offline optimum: evict the candidate whose next use lies farthest ahead. Not a policy to deploy, a line to plot.

Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966 (MIN).
Needs the whole trace first (`foresee`). O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import FallingRuns
from cache.evictor.runs import RunPolicy
from cache.future import NEVER, Future
from cache.run import Run

INDEX_BITS = 40


class Belady(RankedEvictor):
    """Rank: (farthest next use first, deeper first); what is never used again goes by LRU, so that runs go whole."""

    needs_future = True
    needs_keys = False

    def __init__(self) -> None:
        super().__init__()
        self._future: Future | None = None

    def by_run(self) -> RunPolicy | None:
        return BeladyRuns(self) if type(self) is Belady else None  # a subclass may rank otherwise

    def foresee(self, future: Future) -> None:
        self._future = future

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        ranks = self.ranks
        shallower = DEEPEST - depth
        for block, next_use in zip(blocks, self.next_use(access, depth, len(blocks)), strict=True):
            ranks[block] = (_rank(next_use, access.index) << DEPTH_BITS) + shallower
            shallower -= 1

    def next_use(self, access: Access, depth: int, count: int) -> Sequence[int]:
        """When the blocks of this request are used next. Raises PolicyError without a future."""
        if self._future is None:
            raise PolicyError("belady must be shown the future of the trace (foresee) before its first event")
        return self._future.next_use(access.index, depth, count)

    def decision(self, rank: int) -> dict[str, int | float]:
        value, depth = rank >> DEPTH_BITS, DEEPEST - (rank & DEEPEST)
        if value < 1 << INDEX_BITS:
            return {"last_request": value, "depth": depth}  # never used again
        return {"next_use": NEVER - (value >> INDEX_BITS), "depth": depth}


class BeladyRuns(FallingRuns):
    """The same over runs. `run.rank`: the request that touched it last, and the next use of each of its blocks."""

    uniform = False

    def __init__(self, belady: Belady) -> None:
        super().__init__()
        self._belady = belady

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self.accessed(runs, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            run.rank = access.index, self._belady.next_use(access, run.depth, len(run.blocks))

    def split(self, head: Run, tail: Run) -> None:
        (index, next_use), cut = tail.rank, len(head.blocks)
        head.rank, tail.rank = (index, next_use[:cut]), (index, next_use[cut:])

    def rank_at(self, run: Run, place: int) -> int:
        index, next_use = run.rank
        return _rank(next_use[place], index)


def _rank(next_use: int, index: int) -> int:
    """Farther uses first; among blocks that are never used again the one touched longest ago, by request index."""
    return (NEVER - next_use << INDEX_BITS) or index
