"""Uniformly random among the candidates, from a seed: the baseline that knows nothing. O(1) per event."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random as Generator

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.base import Evictor
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run


class Random(Evictor):
    """Candidates in a list, swapped with the last one on removal."""

    needs_keys = False

    def __init__(self, seed: int = 0) -> None:
        self._random = Generator(seed)
        self._blocks: list[int] = []
        self._place: dict[int, int] = {}
        self._known: set[int] = set()

    def by_run(self) -> RunPolicy | None:
        return RandomRuns(self._random) if type(self) is Random else None  # a subclass may choose otherwise

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self._known, blocks)
        self._known.update(blocks)

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        return

    def evictable(self, block: int) -> None:
        if block in self._place:
            raise PolicyError(f"block {block} became evictable twice")
        self._place[block] = len(self._blocks)
        self._blocks.append(block)

    def pinned(self, block: int) -> None:
        if block not in self._place:
            raise PolicyError(f"block {block} was pinned but is no candidate")
        self._withdraw(block)

    def removed(self, block: int) -> None:
        self._known.discard(block)
        self._withdraw(block)

    def _withdraw(self, block: int) -> None:
        place = self._place.pop(block, None)
        if place is None:
            return
        last = self._blocks.pop()
        if last != block:
            self._blocks[place] = last
            self._place[last] = place

    def victim(self) -> int:
        if not self._blocks:
            raise self.nothing_to_choose()
        block = self._blocks[int(self._random.random() * len(self._blocks))]
        self.removed(block)
        return block

    def candidates(self) -> set[int]:
        return set(self._place)


class RandomRuns(RunPolicy):
    """The same over runs: every draw takes the last block of one, and what a run loses is told at once.

    `run.entry`: its place among the candidates. `run.rank`: how many of its last blocks were drawn and not yet told.
    """

    def __init__(self, generator: Generator) -> None:
        self._random = generator
        self._runs: list[Run] = []

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        return

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        return

    def evictable(self, run: Run) -> None:
        if run.entry is not None:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} became evictable twice")
        run.entry = len(self._runs)
        self._runs.append(run)

    def pinned(self, run: Run) -> None:
        if run.entry is None:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} was pinned but is no candidate")
        self.removed(run)

    def removed(self, run: Run) -> None:
        if run.entry is None:
            return
        last = self._runs.pop()
        if last is not run:
            self._runs[run.entry] = last
            last.entry = run.entry
        run.entry = None

    def victims(self, count: int, trim: Trim) -> list[int]:
        draw, runs, chosen, drawn = self._random.random, self._runs, list[int](), list[Run]()
        for _ in range(count):
            if not runs:
                raise PolicyError("RandomRuns was asked for a victim and has no candidate")
            place, end = int(draw() * len(runs)), len(runs) - 1
            run = runs[place]
            if place != end:  # drawn from the list, and if it has more blocks at its end again
                last = runs[place] = runs[end]
                runs[end] = run
                last.entry, run.entry = place, end
            gone, blocks = (run.rank or 0) + 1, run.blocks
            chosen.append(blocks[-gone])
            if gone < len(blocks):
                if gone == 1:
                    drawn.append(run)
                run.rank = gone
                continue
            run.rank = None
            self.removed(run)
            uncovered = trim(run, gone)
            if uncovered is not None:
                self.evictable(uncovered)
        for run in drawn:
            if run.rank:
                gone, run.rank = run.rank, None
                trim(run, gone)
        return chosen

    def candidates(self) -> set[int]:
        return {run.blocks[-1] for run in self._runs}
