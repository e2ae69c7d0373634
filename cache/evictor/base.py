"""The events an eviction policy sees, and the one question it answers.

    inserted ──> (in use) ──evictable──> candidate ──victims──> gone
                    ^ └── accessed           │
                    └───────── pinned ───────┘            removed: gone without having been chosen

A block is a *candidate* between `evictable` and the next `pinned`, `victims` or `removed`. `inserted` and `accessed`
only ever concern blocks in use, and come once per request, never once per step. With `leaf_only` only a block without
a resident child becomes a candidate; taking it may uncover its parent, which the allocator tells within `victims`.

Blocks come in runs along one chain: `blocks[i]` lies at depth `depth + i` (0 is the first block of a prompt).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Hashable, Sequence
from typing import TYPE_CHECKING

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.runs import RunPolicy

if TYPE_CHECKING:
    from cache.future import Future

Uncover = Callable[[int], int]
"""Tells the allocator that a candidate goes; answers the block that became a candidate by that, or -1."""


class Evictor(ABC):
    """An eviction policy over block ids. An instance serves one allocator and holds all its state."""

    needs_future: bool = False
    """True for offline policies: `foresee` must be called before the first event."""

    adapts: bool = True
    """False for policies that by definition never let go of what was hot or early once (plain LFU, MRU)."""

    needs_keys: bool = True
    """False for policies that make no use of the `keys` of `inserted` and may be handed none."""

    def by_run(self) -> RunPolicy | None:
        """This policy for an allocator that thinks in runs, choosing the same victims; None: tell it block by block."""
        return None

    def foresee(self, future: Future) -> None:
        """Learn which request uses which prefix next. Online policies ignore it."""
        return

    @abstractmethod
    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        """A request computed and registered these blocks. `keys` outlive the blocks: ghosts remember keys."""

    @abstractmethod
    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        """A request matched these resident blocks."""

    @abstractmethod
    def evictable(self, block: int) -> None:
        """The block became a candidate."""

    @abstractmethod
    def pinned(self, block: int) -> None:
        """A candidate is in use again."""

    @abstractmethod
    def removed(self, block: int) -> None:
        """The block left the cache without having been chosen (reset, invalidation); candidate or not."""

    @abstractmethod
    def victim(self) -> int:
        """Choose one candidate and forget it. Raises PolicyError where there is none."""

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        """Choose `count` blocks, best victim first; the allocator has made sure that there are as many.

        Every choice is told to `uncover` at once, so that a parent it uncovers can be the next choice.
        """
        chosen = []
        for _ in range(count):
            block = self.victim()
            chosen.append(block)
            parent = uncover(block)
            if parent >= 0:
                self.evictable(parent)
        return chosen

    @abstractmethod
    def candidates(self) -> set[int]:
        """All blocks that may be chosen now; for integrity checks, may be slow."""

    def num_ghosts(self) -> int:
        """Blocks that are gone but remembered; never more than twice the most blocks that were resident at once."""
        return 0

    def must_be_new(self, known: Container[int], blocks: Sequence[int]) -> None:
        """Raises PolicyError where one of `blocks` is `known` already, that is, inserted twice."""
        for block in blocks:
            if block in known:
                raise PolicyError(f"block {block} was inserted twice")

    def nothing_to_choose(self) -> PolicyError:
        """The error a policy raises when asked for a victim it does not have."""
        return PolicyError(f"{type(self).__name__} was asked for a victim and has no candidate")
