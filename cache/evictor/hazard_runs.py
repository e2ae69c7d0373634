"""`hazard` over runs: every run of the tree has one history, and a history may be that of several runs.

The allocator cuts new runs where a ghost begins or ends (`cuts`), and splits a run before it tells of its use, so a
history never begins or ends within a run. `run.rank` is the history.

Knows nothing of what a history is worth: that is `histories`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.histories import Histories, History, Pieces
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run


class HazardRuns(RunPolicy):
    """Runs by what their histories are worth."""

    needs_keys = True

    def __init__(self, histories: Histories) -> None:
        self._histories = histories
        self._cut: tuple[Sequence[Hashable], Pieces] = (), []
        """The keys that were asked about last, and how they were cut: mostly those that are inserted next."""

    def cuts(self, keys: Sequence[Hashable]) -> Sequence[int]:
        self._cut = keys, self._histories.pieces(keys)
        return [start for start, _, _ in self._cut[1][1:]]

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        depth, i = runs[0].depth, 0
        asked, pieces = self._cut
        if asked is not keys:
            pieces = self._histories.pieces(keys)
        for _, stop, history in self._histories.entered(keys, depth, access, pieces):
            while i < len(runs) and runs[i].depth - depth < stop:
                runs[i].rank = history
                i += 1

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        i = 0
        while i < len(runs):
            history: History = runs[i].rank
            first, count = i, 0
            while i < len(runs) and runs[i].rank is history:
                count += len(runs[i].blocks)
                i += 1
            now = self._histories.used(history, count, runs[first].depth, access)
            if now is not history:
                for run in runs[first:i]:
                    run.rank = now

    def evictable(self, run: Run) -> None:
        if run in run.rank.free:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} became evictable twice")
        self._histories.offer(run.rank, run)

    def pinned(self, run: Run) -> None:
        if run not in run.rank.free:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} was pinned but is no candidate")
        self._histories.withdraw(run.rank, run)

    def removed(self, run: Run) -> None:
        if run in run.rank.free:
            self.pinned(run)
        self._histories.lost(run.rank, len(run.blocks))

    def victims(self, count: int, trim: Trim) -> None:
        self._histories.renew()
        while count:
            history = self._histories.lowest()
            if history is None:
                raise PolicyError("Hazard was asked for a victim and has no candidate")
            run: Run | None = next(reversed(history.free))
            gone = 0
            while True:
                assert run is not None
                assert run.keys is not None
                going = min(count, len(run.blocks))
                key = run.keys[-going]
                if run in history.free:
                    self._histories.withdraw(history, run)
                self._histories.lost(history, going)
                run = trim(run, going)
                gone, count = gone + going, count - going
                if run is None or not count or run.rank is not history:
                    break
            self._histories.bury(history, key, gone)
            if run is not None:
                self.evictable(run)

    def candidates(self) -> set[int]:
        return {run.blocks[-1] for run in self._histories.candidates()}
