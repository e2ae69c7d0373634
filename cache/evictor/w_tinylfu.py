"""W-TinyLFU: a small LRU window in front of a segmented LRU, and a duel by frequency at the door between them.

The window's first candidate meets the one the main part would evict; a sketch of recent uses (`count_min.py`) says
which was used more often. The loser goes, so one-time blocks rarely displace anything. A request moves and counts at
once: first all it touches goes where it belongs, then what overflows there goes on. While the pool fills up there is
nothing to duel for, and what leaves the window enters the main part.

Source: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS 2017.
O(log n) amortised per candidate, O(1) per touched block; remembers no keys, only counters.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.count_min import CountMin
from cache.evictor.pieces import PieceQueue
from cache.evictor.queued_runs import QueuedRuns
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run


class WTinyLfu(QueueEvictor):
    """Window, probation, protected."""

    def __init__(self, window: float = 0.01, protected: float = 0.8, counters: int = 65536) -> None:
        """`window`: share of the pool; `protected`: share of the rest; `counters`: width of the sketch."""
        if not (0 < window < 1 and 0 < protected < 1 and counters > 0):
            raise ValueError(
                f"window {window} and protected {protected} must lie in (0, 1), counters {counters} above 0"
            )
        super().__init__(3)
        self.window, self.probation, self.protected = self.queues
        self.window_share, self.protected_share = window, protected * (1 - window)
        self.sketch = CountMin(counters)
        self._filling = True

    def by_run(self) -> RunPolicy | None:
        plain = type(self) is WTinyLfu  # a subclass may queue otherwise
        return WTinyLfuRuns(self.window_share, self.protected_share, self.sketch) if plain else None

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.window

    def touch(self, block: int, access: Access) -> None:
        self.enqueue(block, self.window if self.place[block] is self.window else self.protected)

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(blocks, depth, access, keys)
        self.sketch.enter(blocks, keys, self.capacity)
        while self._filling and len(self.window) > most(self.window_share, self.capacity):
            self.enqueue(next(iter(self.window.blocks)), self.probation)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        super().accessed(blocks, depth, access)
        self.sketch.use(blocks, self.capacity)
        while len(self.protected) > most(self.protected_share, self.capacity):
            self.enqueue(next(iter(self.protected.blocks)), self.probation)

    def choose(self) -> int:
        self._filling = False
        ours, main = self.window.first_candidate(), self.probation.first_candidate()
        if main < 0:
            main = self.protected.first_candidate()
        if ours < 0 or main < 0:
            return max(ours, main)
        if len(self.window) <= most(self.window_share, self.capacity):
            return main
        our_count, main_count = self.sketch.counts([ours, main])
        if our_count <= main_count:
            return ours
        self.enqueue(ours, self.probation)
        return main


class WTinyLfuRuns(QueuedRuns):
    """The same over runs: the last blocks of the window's first candidate meet one opponent until one of them wins."""

    needs_keys = True

    def __init__(self, window: float, protected: float, sketch: CountMin) -> None:
        super().__init__(3)
        self.window, self.probation, self.protected = self.queues
        self.window_share, self.protected_share = window, protected
        self.sketch = sketch
        self._after_hit = {
            self.window: self.window, self.probation: self.protected, self.protected: self.protected
        }  # fmt: skip
        self._filling = True

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue:
        return self.window

    def touch(self, run: Run, stamp: int) -> None:
        self.renew_by(self._after_hit, run, stamp)

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        super().inserted(runs, access, keys)
        self.sketch.enter(blocks_of(runs), keys, self.capacity)
        if self._filling:
            self.spill(self.window, most(self.window_share, self.capacity), self.probation)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        super().accessed(runs, access)
        self.sketch.use(blocks_of(runs), self.capacity)
        self.spill(self.protected, most(self.protected_share, self.capacity), self.probation)

    def victims(self, count: int, trim: Trim) -> None:
        self._filling = False
        super().victims(count, trim)

    def choose(self, most_going: int) -> tuple[Run | None, int]:
        ours = self.window.first_candidate()
        main = self.probation.first_candidate() or self.protected.first_candidate()
        over = len(self.window) - most(self.window_share, self.capacity)
        if ours is None or main is None or over <= 0:
            run = main or ours
            return run, min(most_going, len(run.rank[-1])) if run else 0
        piece = ours.rank[-1]
        challengers = ours.blocks[: -min(most_going, over, len(piece)) - 1 : -1]
        main_count, *our_counts = self.sketch.counts([main.blocks[-1], *challengers])
        lost = next((i for i, count in enumerate(our_counts) if count > main_count), len(our_counts))
        if lost:
            return ours, lost
        self.move(self.cut_last(piece), self.probation, self.tick())
        return main, 1


def most(share: float, capacity: int) -> int:
    """Blocks that a part of the pool may hold; at least one."""
    return max(1, int(share * capacity))


def blocks_of(runs: Sequence[Run]) -> Sequence[int]:
    """The blocks of runs along one chain."""
    return runs[0].blocks if len(runs) == 1 else [block for run in runs for block in run.blocks]
