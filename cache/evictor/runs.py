"""A policy as the extent tree sees it: the events of `base.py`, told once per run instead of once per block.

    inserted ──> (in use) ──evictable──> candidate ──victims──> shorter, or gone
                    ^ └── accessed           │
                    └───────── pinned ───────┘            removed: gone without having been chosen

A run is a candidate as long as nobody owns it and nothing hangs below it. Of a candidate the last blocks go first.

`BlockByBlock` is how any policy of `base.py` works on runs unchanged; a policy that can rank whole runs offers its own
(`Evictor.by_run`) and then costs per run. Both choose the same victims.

Knows nothing of how runs are found or what they hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from cache.access import Access
from cache.errors import PolicyError
from cache.run import Run

if TYPE_CHECKING:
    from cache.evictor.base import Evictor

Trim = Callable[[Run, int], Run | None]
"""Tells the allocator that the last so many blocks of a candidate go; answers the run that is a candidate by that."""


class RunPolicy(ABC):
    """An eviction policy over runs; serves one allocator."""

    needs_keys: bool = False
    """Whether `inserted` must be handed the chained keys of the blocks."""

    @abstractmethod
    def inserted(self, run: Run, access: Access, keys: Sequence[Hashable]) -> None:
        """A request computed and registered this run; `run.rank` is the policy's to set."""

    @abstractmethod
    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        """A request matched these resident runs, which lie along one chain without a gap."""

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


class BlockByBlock(RunPolicy):
    """Tells an `Evictor` of runs block by block. Only the last block of a candidate is one in its eyes."""

    def __init__(self, evictor: Evictor) -> None:
        self._evictor = evictor
        self._tails: dict[int, Run] = {}
        self.needs_keys = evictor.needs_keys

    def inserted(self, run: Run, access: Access, keys: Sequence[Hashable]) -> None:
        self._evictor.inserted(run.blocks[:], run.depth, access, keys)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        blocks: list[int] = []
        for run in runs:
            blocks += run.blocks
        self._evictor.accessed(blocks, runs[0].depth, access)

    def evictable(self, run: Run) -> None:
        tail = run.blocks[-1]
        self._tails[tail] = run
        self._evictor.evictable(tail)

    def pinned(self, run: Run) -> None:
        tail = run.blocks[-1]
        del self._tails[tail]
        self._evictor.pinned(tail)

    def removed(self, run: Run) -> None:
        self._tails.pop(run.blocks[-1], None)
        for block in run.blocks:
            self._evictor.removed(block)

    def victims(self, count: int, trim: Trim) -> list[int]:
        tails, chosen = self._tails, list[int]()
        going: dict[Run, int] = {}  # how many of its last blocks were chosen and not yet told

        def uncover(block: int) -> int:
            run = tails.pop(block, None)
            if run is None:
                raise PolicyError(f"{type(self._evictor).__name__} chose block {block}, which is no candidate")
            chosen.append(block)
            gone = going.get(run, 0) + 1
            if gone == len(run.blocks):
                going.pop(run, None)
                uncovered = trim(run, gone)
                if uncovered is None:
                    return -1
                run, tail = uncovered, uncovered.blocks[-1]
            else:
                going[run] = gone
                tail = run.blocks[-1 - gone]
            tails[tail] = run
            return tail

        try:
            self._evictor.victims(count, uncover)
        finally:
            for run, gone in going.items():
                trim(run, gone)
        return chosen

    def candidates(self) -> set[int]:
        return self._evictor.candidates()
