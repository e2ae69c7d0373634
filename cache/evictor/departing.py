"""Ranked policies that want to know which block leaves, to forget or to remember something about it.

Knows nothing of what they do with it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from cache.evictor.base import Uncover
from cache.evictor.ranked import RankedEvictor


class DepartingEvictor(RankedEvictor):
    """Calls `departed` once for every block that leaves, chosen or not."""

    @abstractmethod
    def departed(self, block: int, chosen: bool) -> None:
        """The block has no rank any more; `chosen` is False where it was removed. Must bear unknown blocks."""

    def victim(self) -> int:
        block = super().victim()
        self.departed(block, True)
        return block

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        def departing(block: int) -> int:
            self.departed(block, True)
            return uncover(block)

        return super().victims(count, departing)

    def removed(self, block: int) -> None:
        super().removed(block)
        self.departed(block, False)

    def rerank(self, block: int, rank: int) -> None:
        """Change the rank of a block that may be a candidate."""
        candidate = block in self._entries
        if candidate:
            self.pinned(block)
        self.ranks[block] = rank
        if candidate:
            RankedEvictor.evictable(self, block)
