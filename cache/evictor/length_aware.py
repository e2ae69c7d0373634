"""Length-aware: blocks deep in their prompts go first, the least recent first among equally deep ones.

Few requests are long enough to use a deep block, and every request that uses it uses its ancestors too. As in Mooncake,
position comes before recency, so what lies near the root is not let go of while anything deeper is left.

Source: Qin et al., "Mooncake: a KVCache-centric disaggregated architecture for LLM serving", FAST 2025
(LengthAwareCache). O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run

INDEX_BITS = 40


class LengthAware(RankedEvictor):
    """Rank: (deeper first, last use)."""

    adapts = False
    needs_keys = False

    def by_run(self) -> RunPolicy | None:
        return LengthAwareRuns() if type(self) is LengthAware else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        first = (DEEPEST - depth << INDEX_BITS) + access.index
        step = -1 << INDEX_BITS
        self.ranks.update(zip(blocks, range(first, first + step * len(blocks), step), strict=True))


class LengthAwareRuns(RankedRuns):
    """The same over runs. `run.rank`: the request that touched it last; what is deeper ranks lower."""

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self.accessed(runs, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            run.rank = access.index

    def rank_at(self, run: Run, place: int) -> int:
        return (DEEPEST - run.depth - place << INDEX_BITS) + int(run.rank)

    def num_below(self, run: Run, bound: int, most: int) -> int:
        depth = DEEPEST - (bound >> INDEX_BITS)
        return min(max(run.depth + len(run.blocks) - 1 - depth, 0), most)
