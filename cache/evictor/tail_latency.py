"""Tail-optimised LRU: first evict what can be recomputed within the latency budget of the next turn, LRU beyond that.

The last `budget` tokens of a conversation may go without making its next turn miss its target for the time to first
token; the blocks before them may not. So the tails go first, least recent first, and then plain LRU decides.

Source: Zhang et al., "Tail-optimized caching for LLM inference", 2025 (T-LRU).
O(log n) per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.ranked import DEEPEST, DEPTH_BITS, RankedEvictor
from cache.evictor.ranked_runs import FallingRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run

INDEX_BITS = 40
DEAR = 1 << INDEX_BITS + DEPTH_BITS


class TailLatency(RankedEvictor):
    """Rank: (beyond the budget, last use, deeper first)."""

    needs_keys = False

    def __init__(self, block_size: int, budget: int = 2048) -> None:
        """`budget`: tokens whose recomputation still meets the target; `block_size`: tokens per block."""
        if budget < 0 or block_size < 1:
            raise ValueError(f"budget must be 0 or more and block_size 1 or more, got {budget} and {block_size}")
        super().__init__()
        self.block_size, self.budget = block_size, budget

    def by_run(self) -> RunPolicy | None:
        return TailLatencyRuns(self) if type(self) is TailLatency else None  # a subclass may rank otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        first = (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))
        for block in blocks[: max(self.num_dear(access) - depth, 0)]:
            self.ranks[block] += DEAR

    def num_dear(self, access: Access) -> int:
        """Blocks of the prompt that end before its tail begins; not positive where it is all tail."""
        return (access.num_tokens - self.budget) // self.block_size


class TailLatencyRuns(FallingRuns):
    """The same over runs. `run.rank`: the request that touched it last, and the depth at which its tail began."""

    def __init__(self, policy: TailLatency) -> None:
        super().__init__()
        self._policy = policy

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        self.accessed(runs, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        rank = access.index, self._policy.num_dear(access)
        for run in runs:
            run.rank = rank

    def rank_at(self, run: Run, place: int) -> int:
        index, num_dear = run.rank
        return int(index) if run.depth + place >= num_dear else index + (1 << INDEX_BITS)
