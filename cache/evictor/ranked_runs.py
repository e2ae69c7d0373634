"""Policies that rank whole runs: the run of lowest rank is trimmed from its tail, as far as it stays the lowest.

The counterpart of `ranked.py`, with the same victims: rank, then deeper first, then block id. A heap of (rank, -end,
last block, run); a run pinned while in the heap leaves a stale entry that is skipped when it surfaces, and the heap is
rebuilt once stale entries outnumber live ones. O(log n) per event, n candidates, whatever the length of the runs.

Knows nothing of what a rank means.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run

Entry = tuple[int, int, int, int, Run]
"""(rank, minus the depth behind its last block, last block, serial number so that runs are never compared, run)"""


class RankedRuns(RunPolicy):
    """Evicts from the candidate of lowest `run.rank`. Subclasses set it in `inserted` and `accessed`."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._serial = 0
        self._num_live = 0

    @abstractmethod
    def inserted(self, run: Run, access: Access, keys: Sequence[Hashable]) -> None: ...

    @abstractmethod
    def accessed(self, runs: Sequence[Run], access: Access) -> None: ...

    def rank_at(self, run: Run, place: int) -> int:
        """The rank of its block `place`; it never rises from one block to the next."""
        return run.rank  # type: ignore[no-any-return]  # what `inserted` and `accessed` set

    def evictable(self, run: Run) -> None:
        if run.entry is not None:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} became evictable twice")
        blocks, heap = run.blocks, self._heap
        self._serial += 1
        run.entry = entry = (
            self.rank_at(run, len(blocks) - 1),
            -run.depth - len(blocks),
            blocks[-1],
            self._serial,
            run,
        )
        heappush(heap, entry)
        self._num_live += 1
        if len(heap) > 2 * self._num_live + 64:
            heap[:] = [entry for entry in heap if entry[4].entry is entry]
            heapify(heap)

    def pinned(self, run: Run) -> None:
        if run.entry is None:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} was pinned but is no candidate")
        run.entry = None
        self._num_live -= 1

    def removed(self, run: Run) -> None:
        if run.entry is not None:
            self.pinned(run)

    def victims(self, count: int, trim: Trim) -> None:
        heap = self._heap
        while count:
            if not heap:
                raise PolicyError(f"{type(self).__name__} was asked for a victim and has no candidate")
            entry = heappop(heap)
            run: Run | None = entry[4]
            if run is None or run.entry is not entry:
                continue
            while run is not None:
                run.entry = None
                self._num_live -= 1
                going = min(count, self._lead(run))
                run, count = trim(run, going), count - going
                if run is not None:
                    self.evictable(run)
                    if not count or heap[0] is not run.entry:
                        break
                    heappop(heap)

    def candidates(self) -> set[int]:
        return {entry[2] for entry in self._heap if entry[4].entry is entry}

    def _lead(self, run: Run) -> int:
        """How many blocks from its tail come before the next candidate's; at least one."""
        heap, blocks = self._heap, run.blocks
        if not heap:
            return len(blocks)
        following, last, end = heap[0][:3], len(blocks) - 1, -run.depth - len(blocks)
        if self.uniform:
            lead = len(blocks) if run.rank < following[0] else 1
        else:  # ranks fall towards the tail
            lead = len(blocks) - bisect_right(range(len(blocks)), -following[0], key=lambda i: -self.rank_at(run, i))
        lead = max(lead, 1)
        while lead <= last and (self.rank_at(run, last - lead), end + lead, blocks[last - lead]) < following:
            lead += 1
        return lead
