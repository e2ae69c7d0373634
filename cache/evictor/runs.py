"""A policy as the extent tree sees it: the events of `base.py`, told once per run instead of once per block.

    inserted ──> (in use) ──evictable──> candidate ──victims──> shorter, or gone
                    ^ └── accessed           │
                    └───────── pinned ───────┘            removed: gone without having been chosen

A run is a candidate as long as nobody owns it and nothing hangs below it. Of a candidate the last blocks go first.

`block_by_block` is how any policy of `base.py` works on runs unchanged. One that can rank whole runs offers itself so
(`Evictor.by_run`) and then costs per run. Both choose the same victims.

Knows nothing of how runs are found or what they hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence

from cache.access import Access
from cache.run import Run

Trim = Callable[[Run, int], Run | None]
"""Tells the allocator that the last so many blocks of a candidate go; answers the run that is a candidate by that."""


class RunPolicy(ABC):
    """An eviction policy over runs; serves one allocator."""

    needs_keys: bool = False
    """Whether `inserted` must be handed the chained keys of the blocks."""

    uniform: bool = True
    """Whether one rank says everything of a run, so that two runs of one rank may become one."""

    def cuts(self, keys: Sequence[Hashable]) -> Sequence[int]:
        """Where runs about to be inserted with these keys must be cut, in ascending order: the places, other than 0,
        before which blocks have another past than after."""
        return ()

    @abstractmethod
    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        """A request computed and registered these runs, mostly one, which lie along one chain without a gap.

        `run.rank` is the policy's to set. `keys` are those of all their blocks; the runs hold them too (`run.keys`).
        """

    @abstractmethod
    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        """A request matched these resident runs, which lie along one chain without a gap."""

    def split(self, head: Run, tail: Run) -> None:
        """`head` was cut off the front of what is now `tail`; both still have the rank of the whole."""
        return

    def join(self, head: Run, tail: Run) -> bool:
        """Whether `tail`, all that hangs below `head`, with the same owners and accesses, may become part of it.

        If so, `head` has the rank of both from here on and `tail` is no more.
        """
        return self.uniform and bool(head.rank == tail.rank)

    def just_grows(self, run: Run, access: Access) -> bool:
        """Whether blocks that `access`, the last request to touch this run, adds behind its end simply count to it: to
        insert and join them, now or later, would change nothing. They are not told, then."""
        return False

    @abstractmethod
    def evictable(self, run: Run) -> None:
        """The run became a candidate."""

    @abstractmethod
    def pinned(self, run: Run) -> None:
        """A candidate is in use again."""

    @abstractmethod
    def removed(self, run: Run) -> None:
        """The run left the cache without having been chosen; candidate or not."""

    @abstractmethod
    def victims(self, count: int, trim: Trim) -> list[int] | None:
        """Choose `count` blocks, best victim first, and tell all choices to `trim`.

        Returns the blocks in the order of choice where that is not the order in which they were told.
        """

    @abstractmethod
    def candidates(self) -> set[int]:
        """The last block of every candidate; for integrity checks, may be slow."""
