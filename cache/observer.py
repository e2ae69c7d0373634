"""What happens to prefixes: the manager looks up and lets go, the allocator promotes, evicts, clears.

    allocate ──looked_up──> take ──evicted──> ... promote ──promoted──> ... free ──released──> ... clear ──cleared──>

The base class is the null object: it listens to nothing. `CacheManager.observe` attaches one; none changes anything.

Knows nothing of allocators or policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from typing import Protocol

from cache.sequence import Sequence

Decision = Mapping[str, int | float]
"""What a policy went by when it chose a victim, by name: {"last_request": 17, "depth": 3}."""


class Observed(Protocol):
    """What an observer may ask of an allocator."""

    @property
    def closed_under_prefix(self) -> bool:
        """Whether a findable block's ancestors are always findable too."""

    def last_touches(self, blocks: Items[int]) -> Iterable[tuple[int, int]]:
        """Of the blocks just evicted, in runs: (index of the last request that touched them, how many)."""


class Observer:
    """Hears of every lookup and of every block that becomes findable or stops being so."""

    wants_decisions: bool = False
    """True to be told by policies, block by block, why they chose a victim: `decided` before `evicted`."""

    def attached(self, allocator: Observed) -> None:
        """It will be told of this allocator from now on; comes first, and once."""

    def looked_up(self, seq: Sequence, num_hits: int, limit: int) -> None:
        """An allocation begins: of its full blocks the first `num_hits` are shared, at most `limit` could have been.

        Comes before anything is evicted to make room for the rest.
        """

    def promoted(self, seq: Sequence, start: int, stop: int) -> None:
        """Blocks `start` to `stop` of the sequence's table are findable, from now on or already."""

    def can_wait(self, seq: Sequence) -> bool:
        """Whether it is as well to hear of what this sequence adds from now on only when somebody comes to that place,
        the sequence is let go, or the observer itself calls `seq.catch_up`."""
        return type(self).promoted is Observer.promoted

    def released(self, seq: Sequence) -> None:
        """The sequence is about to give all its blocks back."""

    def decided(self, block: int, decision: Decision) -> None:
        """A policy chose this block for that reason; policies without a rank say nothing."""

    def evicted(self, blocks: Items[int]) -> None:
        """These blocks were chosen as victims, in this order, to make room for the sequence looked up last."""

    def cleared(self) -> None:
        """Everything findable was forgotten at once."""


NOBODY = Observer()
