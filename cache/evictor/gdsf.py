"""GDSF: priority = age + uses x cost / size; the lowest goes, and the age becomes its priority.

Blocks are of one size; the cost is the computation a hit saves, which grows with a block's depth since attention looks
back at everything before it: 1 + depth / crossover. With no such growth it is LFU with dynamic ageing. Uses are counted
since insertion.

Source: Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy", HP Labs 1998.
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.departing import DepartingEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run

PRECISION = 1 << 16
INDEX_BITS = 40


class Gdsf(DepartingEvictor):
    """Rank: (priority, last use, deeper first)."""

    needs_keys = False

    def __init__(self, crossover: float = 1600.0) -> None:
        """`crossover`: depth, in blocks, at which attention costs as much as the rest of the model."""
        if crossover <= 0:
            raise ValueError(f"crossover must be more than 0 blocks, got {crossover}")
        super().__init__()
        self.crossover = crossover
        self.age = 0
        self._uses: dict[int, int] = {}
        self._priority: dict[int, int] = {}

    def by_run(self) -> RunPolicy | None:
        return GdsfRuns(self) if type(self) is Gdsf else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self._uses.update(dict.fromkeys(blocks, 0))
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for at, block in enumerate(blocks, depth):
            uses = self._uses[block] = self._uses[block] + 1
            priority = self._priority[block] = self.age + self.worth(uses, at)
            self.ranks[block] = ((priority << INDEX_BITS) + access.index << DEPTH_BITS) + DEEPEST - at

    def worth(self, uses: int, depth: int) -> int:
        """Uses x cost."""
        return int(uses * (1 + depth / self.crossover) * PRECISION)

    def departed(self, block: int, chosen: bool) -> None:
        self._uses.pop(block, None)
        priority = self._priority.pop(block, 0)
        if chosen:
            self.age = max(self.age, priority)


class GdsfRuns(RankedRuns):
    """The same over runs. `run.rank`: age at the last use, uses, index of the last; what is deeper ranks higher."""

    def __init__(self, policy: Gdsf) -> None:
        super().__init__()
        self._policy = policy

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        rank = self._policy.age, 1, access.index
        for run in runs:
            run.rank = rank

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        age, index = self._policy.age, access.index
        for run in runs:
            run.rank = age, run.rank[1] + 1, index

    def rank_at(self, run: Run, place: int) -> int:
        age, uses, index = run.rank
        return int((age + self._policy.worth(uses, run.depth + place) << INDEX_BITS) + index)

    def leaving(self, run: Run, count: int) -> None:
        priority = self.rank_at(run, len(run.blocks) - 1) >> INDEX_BITS  # none of the others has a higher one
        self._policy.age = max(self._policy.age, priority)
