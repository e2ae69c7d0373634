"""Least frequently used: fewest requests since insertion, then the least recent, then deeper first.

Ageing is a parameter and off by default. With a half-life, a use counts half after so many requests; since all counts
shrink alike, their order only changes with a new use, and the logarithm of the count, on the scale of some fixed
moment, can stand in the rank (forward decay).

Sources: the frequency-count replacement of Belady, "A study of replacement algorithms for a virtual-storage computer",
IBM Systems Journal 1966; Cormode et al., "Forward decay", ICDE 2009. O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import log2

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run

INDEX_BITS = 40
COUNT_SHIFT = INDEX_BITS + DEPTH_BITS
ONE = 1 << COUNT_SHIFT
PRECISION = 1 << 20
"""Steps per doubling of a decayed count."""


class Lfu(RankedEvictor):
    """Rank: (requests since insertion, index of the last one, deeper first)."""

    needs_keys = False

    def __init__(self, half_life: float | None = None) -> None:
        """`half_life`: requests after which a use counts half; None for plain counts. Raises ValueError below 1."""
        if half_life is not None and half_life < 1:
            raise ValueError(f"half_life must be 1 request or more, or null, got {half_life}")
        super().__init__()
        self.half_life = half_life
        self.adapts = half_life is not None

    def by_run(self) -> RunPolicy | None:
        plain = type(self) is Lfu and self.half_life is None  # a subclass may rank otherwise
        return LfuRuns() if plain else None

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        once = ONE if self.half_life is None else self._fresh(access) << COUNT_SHIFT
        first = once + (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        ranks = self.ranks
        recency = (access.index << DEPTH_BITS) + DEEPEST - depth
        if self.half_life is None:
            for block in blocks:
                ranks[block] = ((ranks[block] >> COUNT_SHIFT) + 1 << COUNT_SHIFT) + recency
                recency -= 1
            return
        fresh = self._fresh(access)
        for block in blocks:
            known = ranks[block] >> COUNT_SHIFT
            more = int(PRECISION * log2(1 + 2 ** ((known - fresh) / PRECISION)))
            ranks[block] = (fresh + more << COUNT_SHIFT) + recency
            recency -= 1

    def _fresh(self, access: Access) -> int:
        """The logarithm of one use now."""
        assert self.half_life is not None
        return int(PRECISION * access.index / self.half_life)

    def decision(self, rank: int) -> dict[str, int | float]:
        last, depth = rank >> DEPTH_BITS & (1 << INDEX_BITS) - 1, DEEPEST - (rank & DEEPEST)
        uses: float = rank >> COUNT_SHIFT
        if self.half_life is not None:  # as they counted at the last access
            uses = 2 ** (uses / PRECISION - last / self.half_life)
        return {"uses": uses, "last_request": last, "depth": depth}


class LfuRuns(RankedRuns):
    """The same over runs: one rank per run."""

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        for run in runs:
            run.rank = (1 << INDEX_BITS) + access.index

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            run.rank = ((run.rank >> INDEX_BITS) + 1 << INDEX_BITS) + access.index
