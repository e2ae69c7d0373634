"""Policies that rank whole runs: the run of lowest rank is trimmed from its tail, as far as it stays the lowest.

The counterpart of `ranked.py`, with the same victims: rank, then deeper first, then block id. Where one number does not
say everything of a run, `rank_at` tells its blocks apart, and the base says how ranks go along it:

    RankedRuns    level or rising towards the tail: once the tail is the lowest, all that is before it may follow
    FallingRuns   level or falling towards the tail: how far it stays the lowest is found by bisection

Where they go anyhow, a policy overrides `num_below`; what that does not count is found block by block.

O(log n) per event, n candidates, whatever the length of the runs. Knows nothing of what a rank means.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.run_heap import RunHeap
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run


class RankedRuns(RunPolicy):
    """Evicts from the candidate of lowest rank. Subclasses set `run.rank` in `inserted` and `accessed`."""

    def __init__(self) -> None:
        self.heap = RunHeap()

    @abstractmethod
    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None: ...

    @abstractmethod
    def accessed(self, runs: Sequence[Run], access: Access) -> None: ...

    def rank_at(self, run: Run, place: int) -> int:
        """The rank of its block `place`."""
        return run.rank  # type: ignore[no-any-return]  # what `inserted` and `accessed` set

    def leaving(self, run: Run, count: int) -> None:
        """The last `count` blocks of a run were chosen and are about to go: the place to remember or forget them."""
        return

    def offer(self, run: Run) -> None:
        """Make the run a candidate at the rank it has now."""
        self.heap.push(run, self.rank_at(run, len(run.blocks) - 1))

    def rerank(self, run: Run, rank: object) -> None:
        """Set `run.rank` of a run that may be a candidate."""
        run.rank = rank
        if run.entry is not None:
            self.heap.drop(run)
            self.offer(run)

    def evictable(self, run: Run) -> None:
        self.offer(run)

    def pinned(self, run: Run) -> None:
        self.heap.drop(run)

    def removed(self, run: Run) -> None:
        if run.entry is not None:
            self.heap.drop(run)

    def victims(self, count: int, trim: Trim) -> list[int] | None:
        pop = self.heap.pop
        while count:
            run = pop()
            if run is None:
                raise PolicyError(f"{type(self).__name__} was asked for a victim and has no candidate")
            going = self._lead(run, min(count, len(run.blocks)))
            self.leaving(run, going)
            count -= going
            rest = trim(run, going)
            if rest is not None:
                self.offer(rest)
        return None

    def candidates(self) -> set[int]:
        return self.heap.tails()

    def num_below(self, run: Run, bound: int, most: int) -> int:
        """How many of its last `most` blocks, counted from the tail on, are known to rank below `bound`, or fewer."""
        return most if self.rank_at(run, len(run.blocks) - 1) < bound else 0

    def _lead(self, run: Run, most: int) -> int:
        """How many of its last `most` blocks come before the next candidate's; at least one."""
        entries = self.heap.entries
        if not entries:
            return most
        following = entries[0]
        lead = self.num_below(run, following[0], most) or 1
        if lead == most:
            return most
        blocks, last, end = run.blocks, len(run.blocks) - 1, -run.depth - len(run.blocks)
        while lead < most and (self.rank_at(run, last - lead), end + lead, blocks[last - lead]) < following:
            lead += 1
        return lead


class FallingRuns(RankedRuns):
    """No block of a run ranks above the one before it."""

    def num_below(self, run: Run, bound: int, most: int) -> int:
        start = len(run.blocks) - most
        if self.rank_at(run, start) < bound:
            return most
        places = range(start, len(run.blocks))
        return most - bisect_right(places, -bound, key=lambda place: -self.rank_at(run, place))
