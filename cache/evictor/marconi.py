"""Marconi: recency plus the computation a byte saves; what is dear to recompute may be older before it goes.

Score = recency + alpha x efficiency, both on the scale of what has been seen: efficiency is the FLOPs a block saves
relative to the first block of a prompt, which grows with depth because attention looks back; one unit of it is worth
`alpha` requests of age. For a pure transformer efficiency varies little within a short prompt, and the policy is LRU.

Source: Pan et al., "Marconi: prefix caching for the era of hybrid LLMs", MLSys 2025.
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run

FRACTION_BITS = 8
"""Requests are split finer than whole ones, so that a small bonus is not lost."""


class Marconi(RankedEvictor):
    """Rank: (last use + alpha x depth / crossover, deeper first)."""

    needs_keys = False

    def __init__(self, alpha: float = 5000.0, crossover: float = 1600.0) -> None:
        """`alpha`: requests of age that a doubled cost is worth; `crossover`: depth, in blocks, at which attention
        doubles the cost of a block."""
        if alpha < 0 or crossover <= 0:
            raise ValueError(f"alpha must be 0 or more and crossover above 0, got {alpha} and {crossover}")
        super().__init__()
        self.bonus = alpha / crossover * (1 << FRACTION_BITS)

    def by_run(self) -> RunPolicy | None:
        return MarconiRuns(self.bonus) if type(self) is Marconi else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        ranks, recency, bonus = self.ranks, access.index << FRACTION_BITS, self.bonus
        for at, block in enumerate(blocks, depth):
            ranks[block] = (recency + int(at * bonus) << DEPTH_BITS) + DEEPEST - at


class MarconiRuns(RankedRuns):
    """The same over runs. `run.rank`: the request that touched it last; what is deeper ranks higher."""

    def __init__(self, bonus: float) -> None:
        super().__init__()
        self._bonus = bonus

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self.accessed(runs, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            run.rank = access.index

    def rank_at(self, run: Run, place: int) -> int:
        return (int(run.rank) << FRACTION_BITS) + int((run.depth + place) * self._bonus)
