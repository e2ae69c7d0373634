"""Candidates in the order of their ranks: runs that may be trimmed, the one whose tail ranks lowest first.

A heap of (rank of the tail, -end, last block, run). A run taken out leaves a stale entry that is skipped when it
surfaces, and the heap is rebuilt once stale entries outnumber live ones. O(log n) per operation, amortised, whatever
the length of the runs.

Knows nothing of what a rank means.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from cache.errors import PolicyError
from cache.run import Run

Entry = tuple[int, int, int, int, Run]
"""(rank, minus the depth behind its last block, last block, serial number so that runs are never compared, run)"""


def is_live(entry: Entry) -> bool:
    """Whether the run is still the candidate that this entry stands for."""
    return entry[4].entry is entry


class RunHeap:
    """Candidates by rank, then deeper first, then block id. `run.entry` says whether and where a run is in it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """A heap, with stale entries in it; the first may be one of them."""
        self._serial = 0
        self._num_live = 0

    def __len__(self) -> int:
        return self._num_live

    def push(self, run: Run, rank: int) -> None:
        """A run is a candidate from now on; `rank` is that of its last block. Raises PolicyError if it is one."""
        blocks, entries = run.blocks, self.entries
        if run.entry is not None:
            raise PolicyError(f"the run that ends in block {blocks[-1]} became evictable twice")
        self._serial += 1
        run.entry = entry = (rank, -run.depth - len(blocks), blocks[-1], self._serial, run)
        heappush(entries, entry)
        self._num_live += 1
        if len(entries) > 2 * self._num_live + 64:
            entries[:] = [entry for entry in entries if entry[4].entry is entry]
            heapify(entries)

    def drop(self, run: Run) -> None:
        """A run is no candidate any more. Raises PolicyError if it was none."""
        if run.entry is None:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} was pinned but is no candidate")
        run.entry = None
        self._num_live -= 1

    def first(self) -> Run | None:
        """The candidate that ranks lowest."""
        entries = self.entries
        while entries:
            run = entries[0][4]
            if run.entry is entries[0]:
                return run
            heappop(entries)
        return None

    def pop(self) -> Run | None:
        """The candidate that ranks lowest, which is none any more."""
        run = self.first()
        if run is not None:
            heappop(self.entries)
            run.entry = None
            self._num_live -= 1
        return run

    def tails(self) -> set[int]:
        """The last blocks of all candidates."""
        return {entry[2] for entry in self.entries if entry[4].entry is entry}
