"""What `hazard` knows: which requests used which blocks, which of them left, and what each is worth now.

A *history* is that of blocks of one chain which the same requests used. It ends where blocks of it are used without the
others: they go on under a new one. A history whose blocks were evicted stays behind as a ghost, found by the key of the
first block that left, and goes on when they come back.

    new ──entered──> history ──used──> history (of all its blocks, or a new one of the part that was used)
                        │ buried
                        └──────> ghost ──entered again──> history

Ranks are renewed once a quarter of the candidates has changed, the model when requests have grown by a tenth.

Knows nothing of what a candidate is: a block, or a run of the tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from math import log2
from typing import Any

import numpy as np

from cache.access import Access
from cache.evictor.hazard_curves import EDGES
from cache.evictor.hazard_model import HazardModel, Kind, Life
from cache.evictor.rival import Rival, Visit

FIRST_FIT, LONGEST_PAUSE, GROWTH = 50, 1000, 0.1  # requests, requests, share of the requests so far
FRESHNESS = 4


class History:
    """`size` resident blocks with one past; of a ghost, `length` blocks left last."""

    __slots__ = ("count", "free", "gap", "ghost", "length", "life", "size", "visit")

    def __init__(self, visit: Visit, count: int, gap: float | None, size: int) -> None:
        self.visit = visit
        self.count = count
        """Uses."""
        self.gap = gap
        """Mean seconds between two, the latest ones."""
        self.size = self.length = size
        self.free: dict[Any, None] = {}
        """Its candidates, in the order in which they became that."""
        self.life: Life | None = None
        self.ghost: tuple[Hashable, History] | None = None


Entry = tuple[float, int, int, History]
"""(worth of waiting, last request, serial number that falls, history)"""

Pieces = list[tuple[int, int, History | None]]
"""New blocks, cut where a ghost begins or ends: (start, stop, the ghost that returns or None)."""


class Histories:
    """All histories, resident or remembered, and the order in which the candidates among them go."""

    def __init__(
        self, half_life: float, often: int, recent_gaps: int, evidence: float, rate: float, offset: float
    ) -> None:
        """The parameters of `Hazard`."""
        self.half_life, self.often, self.recent_gaps = half_life, often, recent_gaps
        self.model = HazardModel(evidence, rate, offset)
        self.ghosts: OrderedDict[Hashable, History] = OrderedDict()
        self._rival = Rival()
        self._resident: dict[History, None] = {}
        self._free: dict[History, None] = {}
        self._heap: list[Entry] = []
        self._next_ranking = self._tie = 0
        self._now, self._timed = 0.0, False
        self._tokens_per_block = 1 << 30
        self._num_blocks = self._capacity = self._requests = self._fitted = 0
        self._next_fit = FIRST_FIT

    def visit(self, access: Access) -> Visit:
        """The record of a request, begun with its first event; arrival times count as soon as there are any."""
        visit = self._rival.visit(access.index)
        if visit is None:
            self._timed = self._timed or access.time > 0
            visit = Visit(access.index, access.time if self._timed else float(access.index), access.num_tokens)
            self._now = max(self._now, visit.time)
            self._requests += 1
            self._rival.begun(visit, self._capacity)
        return visit

    def pieces(self, keys: Sequence[Hashable]) -> Pieces:
        """Cut new blocks where a ghost begins or ends."""
        if self.ghosts.keys().isdisjoint(keys):
            return [(0, len(keys), None)]
        pieces: Pieces = []
        start = i = 0
        while i < len(keys):
            ghost = self.ghosts.get(keys[i])
            if ghost is None:
                i += 1
                continue
            if start < i:
                pieces.append((start, i, None))
            stop = min(i + ghost.length, len(keys))
            pieces.append((i, stop, ghost))
            start = i = stop
        if start < len(keys):
            pieces.append((start, len(keys), None))
        return pieces

    def entered(
        self, keys: Sequence[Hashable], depth: int, access: Access, pieces: Pieces
    ) -> list[tuple[int, int, History]]:
        """A request computed blocks of these keys, cut into `pieces` just now: the histories they have from here on, as
        (start, stop, history)."""
        visit, histories = self.visit(access), []
        self._tokens_per_block = min(self._tokens_per_block, access.num_tokens // (depth + len(keys)))
        for start, stop, ghost in pieces:
            history = None if start or ghost else self._grown(visit, depth, stop)
            if history is None:
                history = self._begun(visit, ghost, keys[start], stop - start)
                visit.num_runs += 1
                visit.start = depth + start
            histories.append((start, stop, history))
        visit.growing, visit.end = histories[-1][2], depth + len(keys)
        self._num_blocks += len(keys)
        self._rival.touched(visit, len(keys))
        self._rival.entered(len(keys))
        self._capacity = max(self._capacity, self._num_blocks)
        return histories

    def used(self, history: History, count: int, depth: int, access: Access) -> History:
        """A request matched `count` blocks of a history, the first of them at `depth`; returns their history now."""
        visit = self.visit(access)
        self._rival.wanted(history.visit, count, True)
        gap = self._ended(history, used=True)
        if count < history.size:
            history.size -= count
            history = History(history.visit, history.count, history.gap, count)
            self._resident[history] = None
        history.count += 1
        history.gap = self._mean_gap(history, gap)
        history.visit, history.life, history.ghost = visit, None, None
        visit.num_runs += 1
        visit.start = depth
        self._rival.touched(visit, count)
        return history

    def lost(self, history: History, count: int) -> None:
        """So many blocks of a history are resident no more."""
        history.size -= count
        self._num_blocks -= count
        if not history.size:
            del self._resident[history]

    def bury(self, history: History, key: Hashable, count: int) -> None:
        """`count` blocks left the end of a history; what left of it so far is known by the key of its first block."""
        if history.ghost is not None and self.ghosts.get(history.ghost[0]) is history.ghost[1]:
            ghost = self.ghosts.pop(history.ghost[0])
        else:
            ghost = History(history.visit, history.count, history.gap, 0)
            ghost.life = self._life(history)
        ghost.length += count
        history.ghost = (key, ghost)
        self.ghosts[key] = ghost
        while len(self.ghosts) > self._capacity:
            forgotten = self.ghosts.popitem(last=False)[1]
            self._rival.left(forgotten.visit, forgotten.length)
            self._ended(forgotten, used=False)

    def offer(self, history: History, candidate: Any) -> None:
        """Something of this history became a candidate."""
        history.free[candidate] = None
        if len(history.free) == 1:
            self._free[history] = None
            if len(self._heap) > 2 * len(self._free) + 64:
                self._rank_all()
            else:
                self._tie -= 1
                heappush(self._heap, (self._worth(history), history.visit.index, self._tie, history))

    def withdraw(self, history: History, candidate: Any) -> None:
        """It is none any more."""
        del history.free[candidate]
        if not history.free:
            del self._free[history]

    def renew(self) -> None:
        """Fit the model and rank the candidates again, where that is due."""
        if self._rival.judge():
            self._next_ranking = 0
        if self._requests >= self._next_fit:
            self._fit()
            self._rank_all()
        elif self._requests > self._next_ranking:
            self._rank_all()

    def lowest(self) -> History | None:
        """The history with a candidate that is worth least; of its candidates the latest one goes first."""
        heap = self._heap
        while heap:
            _, index, _, history = heap[0]
            if history.free and index == history.visit.index:
                return history
            heappop(heap)
        return None

    def why(self, history: History) -> dict[str, int | float]:
        """What the choice goes by, for people who ask."""
        return {
            "hits_per_second": self.model.worth(self._life(history))[
                bisect_right(EDGES, self._now - history.visit.time)
            ],
            "last_request": history.visit.index,
            "uses": history.count,
        }

    def candidates(self) -> list[Any]:
        """All of them."""
        return [candidate for history in self._free for candidate in history.free]

    def _grown(self, visit: Visit, depth: int, count: int) -> History | None:
        """New blocks right behind those that the request added last go on with their history."""
        history: History | None = visit.growing
        if history is None or history.visit is not visit or history.count > 1 or visit.end != depth or not history.size:
            return None
        history.size += count
        return history

    def _begun(self, visit: Visit, ghost: History | None, key: Hashable, size: int) -> History:
        history = History(visit, 1, None, size)
        if ghost is not None:
            del self.ghosts[key]
            self._rival.wanted(ghost.visit, size, False)
            gap = self._ended(ghost, used=True)
            history.count += ghost.count
            history.gap = ghost.gap
            history.gap = self._mean_gap(history, gap)
        self._resident[history] = None
        return history

    def _mean_gap(self, history: History, gap: float) -> float:
        if history.gap is None:
            return gap
        return history.gap + (gap - history.gap) / min(history.count - 1, self.recent_gaps)

    def _ended(self, history: History, used: bool) -> float:
        """A stay is over; returns how long it was."""
        age = self._now - history.visit.time
        self.model.observe(history.life or self._life(history), age, used)
        return age

    def _life(self, history: History) -> Life:
        """Of its kind. Stratum: how often it was used; traits: turn, use count and gap, tokens the request added."""
        if history.life is None:
            count, gap = history.count, history.gap
            if count >= self.often:
                kind: Kind = (2 ** (int(2 * log2(1 + (gap or 0.0))) / 2 + 0.25) - 1, None, None, None)
            else:
                visit, uses = history.visit, (1 + count).bit_length() - 1
                added = max(visit.num_tokens - visit.start * self._tokens_per_block, 0)
                gap_class = -1 if gap is None else int(1 + gap).bit_length()
                kind = (min(uses, 3), min(visit.num_runs, 10), (uses, gap_class), (1 + added).bit_length())
            history.life = self.model.life(kind)
        return history.life

    def _worth(self, history: History) -> float:
        """What waiting for it is worth now; nothing where LRU leads: then they go by their last request alone."""
        if self._rival.leads:
            return 0.0
        life = history.life or self._life(history)
        return (life.worth or self.model.worth(life))[bisect_right(EDGES, self._now - history.visit.time)]

    def _rank_all(self) -> None:
        worth, tie = self._worth, self._tie
        self._heap = [
            (worth(history), history.visit.index, tie - i, history) for i, history in enumerate(self._free, 1)
        ]
        self._tie = tie - len(self._free)
        heapify(self._heap)
        self._next_ranking = self._requests + len(self._free) // FRESHNESS

    def _fit(self) -> None:
        histories = [*self._resident, *self.ghosts.values()]
        lives = [history.life or self._life(history) for history in histories]
        ages = self._now - np.array([history.visit.time for history in histories])
        self.model.fit(lives, ages, 0.5 ** ((self._requests - self._fitted) / self.half_life))
        self._fitted = self._requests
        self._next_fit = self._requests + min(max(int(GROWTH * self._requests), FIRST_FIT), LONGEST_PAUSE)
