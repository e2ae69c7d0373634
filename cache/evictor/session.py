"""Sessions: what an ended session leaves, and what a newer turn has superseded, goes first; then LRU.

A turn supersedes the blocks of the turn before it that it did not use itself: an edited message, a rolled-up history,
a discarded branch; until the session goes back to them. A session is over when a request says so (`Access.last_turn`).
Only blocks that no other session has used are meant. Without sessions it is LRU.

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
INDEX_MASK = (1 << INDEX_BITS) - 1
WANTED = 1 << INDEX_BITS + DEPTH_BITS
WANTED_RUN = 1 << INDEX_BITS


class Session(DepartingEvictor):
    """Rank: (still wanted, last use, deeper first)."""

    needs_keys = False

    def __init__(self) -> None:
        super().__init__()
        self._owner: dict[int, str] = {}
        self._wanted: dict[str, dict[int, int]] = {}
        """Session → blocks only it has used and may go on with, and the request that used them last."""

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
                self._unlist(block)
                del owner[block]
        if session is None:
            return
        for block in blocks:
            if owner.get(block) == session:
                if access.last_turn:
                    self._unlist(block)
                    self.ranks[block] -= WANTED
                else:
                    self._wanted.setdefault(session, {})[block] = access.index

    def evictable(self, block: int) -> None:
        super().evictable(block)
        session = self._owner.get(block)
        if session in self._wanted:
            self._supersede(session, self.ranks[block] >> DEPTH_BITS & INDEX_MASK)

    def departed(self, block: int, chosen: bool) -> None:
        self._unlist(block)
        self._owner.pop(block, None)

    def _supersede(self, session: str, turn: int) -> None:
        """A turn is over: what its session used before, and not in it, is wanted no more."""
        for block in [block for block, used in self._wanted[session].items() if used < turn]:
            self._unlist(block)
            self.rerank(block, self.ranks[block] - WANTED)

    def _unlist(self, block: int) -> None:
        session = self._owner.get(block)
        if session in self._wanted and self._wanted[session].pop(block, None) is not None:
            if not self._wanted[session]:
                del self._wanted[session]


class SessionRuns(RankedRuns):
    """The same over runs. `run.rank`: (still wanted, last use) and the session that owns it, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[str, dict[int, set[Run]]] = {}
        """Session → request that used them last → runs only it has used and may go on with."""

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        for run in runs:
            self._use(run, access.session, access)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        for run in runs:
            owner = run.rank[1]
            self._unlist(run)
            self._use(run, owner if owner == access.session else None, access)

    def rank_at(self, run: Run, place: int) -> int:
        return int(run.rank[0])

    def split(self, head: Run, tail: Run) -> None:
        rank, owner = tail.rank
        if _is_listed(tail):
            self._turns[owner][rank & INDEX_MASK].add(head)

    def join(self, head: Run, tail: Run) -> bool:
        if not super().join(head, tail):
            return False
        self._unlist(tail)
        return True

    def evictable(self, run: Run) -> None:
        super().evictable(run)
        rank, owner = run.rank
        if owner in self._turns:
            self._supersede(owner, rank & INDEX_MASK)

    def leaving(self, run: Run, count: int) -> None:
        if count == len(run.blocks):
            self._unlist(run)

    def removed(self, run: Run) -> None:
        super().removed(run)
        self._unlist(run)

    def _use(self, run: Run, owner: str | None, access: Access) -> None:
        over = access.last_turn and owner is not None
        run.rank = (0 if over else WANTED_RUN) + access.index, owner
        if owner is not None and not over:
            self._turns.setdefault(owner, {}).setdefault(access.index, set()).add(run)

    def _supersede(self, session: str, turn: int) -> None:
        turns = self._turns[session]
        if len(turns) == 1 and turn in turns:
            return
        for earlier in [index for index in turns if index < turn]:
            for run in turns.pop(earlier):
                self.rerank(run, (earlier, session))
        if not turns:
            del self._turns[session]

    def _unlist(self, run: Run) -> None:
        if not _is_listed(run):
            return
        rank, owner = run.rank
        turns, index = self._turns[owner], rank & INDEX_MASK
        turns[index].remove(run)
        if not turns[index]:
            del turns[index]
            if not turns:
                del self._turns[owner]


def _is_listed(run: Run) -> bool:
    rank, owner = run.rank
    return rank >= WANTED_RUN and owner is not None
