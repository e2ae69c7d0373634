"""Sessions: what an ended session leaves, and what a newer turn has superseded, goes first; then LRU.

A turn supersedes the blocks of the turn before it that it did not use itself: an edited message, a rolled-up history,
a discarded branch. A session is over when a request says so (`Access.last_turn`). Only blocks that no
other session has used are meant. Without sessions it is LRU.

Source: the end-of-session and branch hints users of serving systems ask for; no paper.
O(log n) per candidate, O(1) amortised per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.departing import DepartingEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS

INDEX_BITS = 40
WANTED = 1 << INDEX_BITS + DEPTH_BITS


class Session(DepartingEvictor):
    """Rank: (still wanted, last use, deeper first)."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: dict[int, str] = {}
        self._blocks: dict[str, dict[int, int]] = {}
        """Session → blocks only it has used, with the request that did so last."""

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.ranks, blocks)
        if access.session is not None:
            self._owner.update(dict.fromkeys(blocks, access.session))
        self.accessed(blocks, depth, access)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        first = WANTED + (access.index << DEPTH_BITS) + DEEPEST - depth
        self.ranks.update(zip(blocks, range(first, first - len(blocks), -1), strict=True))
        session, owner = access.session, self._owner
        for block in blocks:
            if owner.get(block, session) != session:
                self._disown(block)
        if session is not None:
            mine = self._blocks.setdefault(session, {})
            mine.update((block, access.index) for block in blocks if owner.get(block) == session)
            if access.last_turn:
                for block in blocks:
                    if block in mine:
                        self.ranks[block] -= WANTED

    def evictable(self, block: int) -> None:
        super().evictable(block)
        session = self._owner.get(block)
        if session is not None:
            self._supersede(session, self._blocks[session][block])

    def departed(self, block: int, chosen: bool) -> None:
        self._disown(block)

    def _supersede(self, session: str, turn: int) -> None:
        """A turn is over: what its session used before, and not in it, is wanted no more."""
        mine = self._blocks[session]
        if next(iter(mine.values())) == turn:
            return
        for block in [block for block, used in mine.items() if used < turn]:
            self._disown(block)
            self.rerank(block, self.ranks[block] & WANTED - 1)

    def _disown(self, block: int) -> None:
        session = self._owner.pop(block, None)
        if session is not None:
            del self._blocks[session][block]
            if not self._blocks[session]:
                del self._blocks[session]
