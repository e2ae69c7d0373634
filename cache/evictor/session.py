"""Sessions: what an ended session leaves, and what a newer turn has superseded, goes first; then LRU.

A turn supersedes the blocks of the turn before it that it did not use itself: an edited message, a rolled-up history,
a discarded branch. One that is gone back to all the same has proved itself. A session is over when a request says so
(`Access.last_turn`). Only blocks that no other session has used are meant. Without sessions it is LRU.

Source: the end-of-session and branch hints users of serving systems ask for; no paper.
O(log n) per candidate, O(1) amortised per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.departing import DepartingEvictor
from cache.evictor.ranked import DEEPEST, DEPTH_BITS
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run

INDEX_BITS = 40
WANTED = 1 << INDEX_BITS + DEPTH_BITS
WANTED_RUN = 1 << INDEX_BITS


class Session(DepartingEvictor):
    """Rank: (still wanted, last use, deeper first)."""

    needs_keys = False

    def __init__(self) -> None:
        super().__init__()
        self._owner: dict[int, str] = {}
        self._blocks: dict[str, dict[int, int]] = {}
        """Session → blocks only it has used, with the request that did so last."""

    def by_run(self) -> RunPolicy | None:
        return SessionRuns() if type(self) is Session else None  # a subclass may rank otherwise

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
        mine = [block for block in blocks if owner.get(block) == session] if session is not None else []
        if session is not None and mine:
            self._blocks.setdefault(session, {}).update(dict.fromkeys(mine, access.index))
            if access.last_turn:
                for block in mine:
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
        for block in [block for block, used in self._blocks[session].items() if used < turn]:
            self._disown(block)
            self.rerank(block, self.ranks[block] & WANTED - 1)

    def _disown(self, block: int) -> None:
        session = self._owner.pop(block, None)
        if session is not None:
            del self._blocks[session][block]
            if not self._blocks[session]:
                del self._blocks[session]


class SessionRuns(RankedRuns):
    """The same over runs. `run.rank`: (still wanted, last use) and the session that owns it, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[str, dict[int, set[Run]]] = {}
        """Session → request that used them last → runs only it has used."""

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        for run in runs:
            self._use(run, access.session, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            owner = run.rank[1]
            if owner is not None:
                self._disown(run)
            self._use(run, owner if owner == access.session else None, access)

    def rank_at(self, run: Run, place: int) -> int:
        return int(run.rank[0])

    def split(self, head: Run, tail: Run) -> None:
        rank, owner = tail.rank
        if owner is not None:
            self._turns[owner][_index(rank)].add(head)

    def join(self, head: Run, tail: Run) -> bool:
        if not super().join(head, tail):
            return False
        self._disown(tail)
        return True

    def evictable(self, run: Run) -> None:
        super().evictable(run)
        rank, owner = run.rank
        if owner is not None and len(self._turns[owner]) > 1:
            self._supersede(owner, _index(rank))

    def leaving(self, run: Run, count: int) -> None:
        if count == len(run.blocks):
            self._disown(run)

    def removed(self, run: Run) -> None:
        super().removed(run)
        self._disown(run)

    def _use(self, run: Run, owner: str | None, access: Access) -> None:
        over = access.last_turn and owner is not None
        run.rank = (0 if over else WANTED_RUN) + access.index, owner
        if owner is not None:
            self._turns.setdefault(owner, {}).setdefault(access.index, set()).add(run)

    def _supersede(self, session: str, turn: int) -> None:
        turns = self._turns[session]
        for earlier in [index for index in turns if index < turn]:
            for run in turns.pop(earlier):
                self.rerank(run, (earlier, None))

    def _disown(self, run: Run) -> None:
        rank, owner = run.rank
        if owner is None:
            return
        turns = self._turns[owner]
        turns[_index(rank)].remove(run)
        if not turns[_index(rank)]:
            del turns[_index(rank)]
            if not turns:
                del self._turns[owner]


def _index(rank: int) -> int:
    return rank & WANTED_RUN - 1
