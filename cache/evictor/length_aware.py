"""Length-aware: blocks deep in their prompts go first, the least recent first among equally deep ones.

Few requests are long enough to use a deep block, and every request that uses it uses its ancestors too. As in Mooncake,
position comes before recency, so what lies near the root is not let go of while anything deeper is left.

Source: Qin et al., "Mooncake: a KVCache-centric disaggregated architecture for LLM serving", FAST 2025
(LengthAwareCache). O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.ranked import DEEPEST, RankedEvictor
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy, Trim
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

    def victims(self, count: int, trim: Trim) -> list[int]:
        """Level by level: the runs that reach down deepest lose a block each, as long as none of them ends and no other
        reaches as deep."""
        chosen: list[int] = []
        while count:
            level = self._deepest(count)
            following = self.heap.first()
            floor = max(max(run.depth for run in level), _end(following) if following is not None else 0)
            num_levels = min(max(_end(level[0]) - floor, 1), count // len(level))
            if any(run.rank == other.rank for run, other in pairwise(level)):
                num_levels = 1  # ids decide between them, at every level
            for blocks in zip(*[run.blocks[: -num_levels - 1 : -1] for run in level], strict=True):
                chosen += blocks
            count -= num_levels * len(level)
            for run in level:
                rest = trim(run, num_levels)
                if rest is not None:
                    self.offer(rest)
        return chosen

    def _deepest(self, most: int) -> list[Run]:
        """The candidates whose last blocks lie deepest, or the first of them, in the order in which those go; they are
        no candidates any more."""
        heap, level = self.heap, list[Run]()
        run = heap.pop()
        if run is None:
            raise PolicyError(f"{type(self).__name__} was asked for a victim and has no candidate")
        end = _end(run)
        while run is not None:
            level.append(run)
            following = heap.first()
            run = heap.pop() if following is not None and _end(following) == end and len(level) < most else None
        return level


def _end(run: Run) -> int:
    """The depth behind its last block."""
    return run.depth + len(run.blocks)
