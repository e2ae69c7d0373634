"""Hazard: evict the blocks whose next use is worth least waiting for. PageLab's own policy.

What a serving system sees of blocks says much about their future: which turn of a conversation they are (histories on
the path), how often and after what gap they were used, how many tokens the last request added. From all histories,
resident or recently gone, `HazardModel` learns the rate of use by these traits and age, and says what waiting is worth;
LRU, in contrast, only ever looks at the age. What is used often (system prompts) is told by its gap alone. Blocks of
one history leave from its end, the least worthy history first. Where LRU would have hit more of late (`Rival`), LRU
decides for a while, so that little can be lost.

Sources: see `hazard_model`. O(log n) amortised per candidate, O(1) per touched block. Ghosts: one key per history that
left, at most one pool. What it knows lies in `histories`; this module only tells which blocks are which history's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.base import Evictor, Uncover
from cache.evictor.hazard_runs import HazardRuns
from cache.evictor.histories import Histories, History
from cache.evictor.runs import RunPolicy


class Hazard(Evictor):
    """Blocks by what their histories are worth."""

    def __init__(
        self,
        half_life: float = 20_000.0,
        often: int = 12,
        recent_gaps: int = 32,
        evidence: float = 10.0,
        rate: float = 0.3,
        offset: float = 60.0,
    ) -> None:
        """`half_life`: requests after which what was learned counts half. `often`: uses from which on the gap alone
        tells; it is the mean of about the last `recent_gaps`. `evidence`: uses that weigh as much as the prior hazard
        `rate` / (age + `offset` seconds).

        Raises ValueError for what is out of range.
        """
        for name, value in (("half_life", half_life), ("evidence", evidence), ("rate", rate), ("offset", offset)):
            if value <= 0:
                raise ValueError(f"{name} must be more than 0, got {value}")
        for name, value in (("often", often), ("recent_gaps", recent_gaps)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        self._parameters = half_life, often, recent_gaps, evidence, rate, offset
        self._histories = Histories(*self._parameters)
        self._of: dict[int, History] = {}
        self._keys: dict[int, Hashable] = {}

    def by_run(self) -> RunPolicy | None:
        return HazardRuns(Histories(*self._parameters)) if type(self) is Hazard else None  # a subclass may differ

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self._of, blocks)
        self._keys.update(zip(blocks, keys, strict=True))
        for start, stop, history in self._histories.entered(keys, depth, access, self._histories.pieces(keys)):
            self._of.update(dict.fromkeys(blocks[start:stop], history))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        i = 0
        while i < len(blocks):
            history, first = self._of[blocks[i]], i
            while i < len(blocks) and self._of[blocks[i]] is history:
                i += 1
            now = self._histories.used(history, i - first, depth + first, access)
            if now is not history:
                self._of.update(dict.fromkeys(blocks[first:i], now))

    def evictable(self, block: int) -> None:
        history = self._of[block]
        if block in history.free:
            raise PolicyError(f"block {block} became evictable twice")
        self._histories.offer(history, block)

    def pinned(self, block: int) -> None:
        history = self._of.get(block)
        if history is None or block not in history.free:
            raise PolicyError(f"block {block} was pinned but is no candidate")
        self._histories.withdraw(history, block)

    def removed(self, block: int) -> None:
        history = self._of.pop(block, None)
        if history is not None:
            del self._keys[block]
            if block in history.free:
                self._histories.withdraw(history, block)
            self._histories.lost(history, 1)

    def victim(self) -> int:
        return self.victims(1, lambda block: -1)[0]

    def victims(self, count: int, uncover: Uncover) -> list[int]:
        self._histories.renew()
        chosen: list[int] = []
        while len(chosen) < count:
            history = self._histories.lowest()
            if history is None:
                raise self.nothing_to_choose()
            block, first = next(reversed(history.free)), len(chosen)
            while True:
                key = self._keys[block]
                if self.tell is not None:
                    self.tell(block, self._histories.why(history))
                self.removed(block)
                chosen.append(block)
                parent = uncover(block)
                if parent < 0 or len(chosen) == count or self._of[parent] is not history:
                    break
                block = parent
            self._histories.bury(history, key, len(chosen) - first)
            if parent >= 0:
                self.evictable(parent)
        return chosen

    def candidates(self) -> set[int]:
        return set(self._histories.candidates())

    def num_ghosts(self) -> int:
        return len(self._histories.ghosts)
