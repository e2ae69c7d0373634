"""Policies whose choice is the lowest rank, where a block's rank changes only when a request touches it.

A heap of (rank, block) packed into one integer; a block pinned while in the heap leaves a stale entry that is skipped
when it surfaces, and the heap is rebuilt once stale entries outnumber live ones. O(log n) per event, amortised.

Knows nothing of what a rank means.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from cache.errors import PolicyError
from cache.evictor.base import Evictor, Uncover

BLOCK_BITS = 32
BLOCK_MASK = (1 << BLOCK_BITS) - 1
DEPTH_BITS = 32
DEEPEST = (1 << DEPTH_BITS) - 1
"""`DEEPEST - depth` in the low bits of a rank breaks ties: deeper first."""


class RankedEvictor(Evictor):
    """Evicts the candidate of lowest rank. Subclasses write `self.ranks[block]` in `inserted` and `accessed`."""

    def __init__(self) -> None:
        self.ranks: dict[int, int] = {}
        self._entries: dict[int, int] = {}
        self._heap: list[int] = []

    def evictable(self, block: int) -> None:
        if block in self._entries:
            raise PolicyError(f"block {block} became evictable twice")
        entry = self.ranks[block] << BLOCK_BITS | block
        self._entries[block] = entry
        heap = self._heap
        if len(heap) > 2 * len(self._entries) + 64:
            heap[:] = self._entries.values()
            heapify(heap)
        else:
            heappush(heap, entry)

    def pinned(self, block: int) -> None:
        if self._entries.pop(block, None) is None:
            raise PolicyError(f"block {block} was pinned but is no candidate")

    def removed(self, block: int) -> None:
        self._entries.pop(block, None)
        self.ranks.pop(block, None)

    def victim(self) -> int:
        heap, entries = self._heap, self._entries
        while heap:
            entry = heappop(heap)
            block = entry & BLOCK_MASK
            if entries.get(block) == entry:
                del entries[block]
                rank = self.ranks.pop(block)
                if self.tell is not None:
                    self.tell(block, self.decision(rank))
                return block
        raise self.nothing_to_choose()

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        chosen: list[int] = []
        heap, entries, ranks, tell = self._heap, self._entries, self.ranks, self.tell
        while len(chosen) < count:
            if not heap:
                raise self.nothing_to_choose()
            entry = heappop(heap)
            block = entry & BLOCK_MASK
            if entries.get(block) != entry:
                continue
            del entries[block]
            while block >= 0:
                rank = ranks.pop(block)
                if tell is not None:
                    tell(block, self.decision(rank))
                chosen.append(block)
                block = uncover(block)
                if block >= 0:
                    entry = ranks[block] << BLOCK_BITS | block
                    if len(chosen) == count or (heap and heap[0] < entry):
                        entries[block] = entry
                        heappush(heap, entry)
                        break  # else the uncovered parent is itself the lowest: no need to pass it through the heap
        return chosen

    def decision(self, rank: int) -> dict[str, int | float]:
        """A rank spelled out by name, for people who ask why."""
        return {"rank": float(rank)}

    def candidates(self) -> set[int]:
        return set(self._entries)
