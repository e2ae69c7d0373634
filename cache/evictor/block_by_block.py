"""Any policy of `base.py`, unchanged, under an allocator that thinks in runs.

Costs what the policy costs per block, and a little per block evicted. Knows nothing of what the policy goes by.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.base import Evictor
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run


class BlockByBlock(RunPolicy):
    """Tells an `Evictor` of runs block by block. Only the last block of a candidate is one in its eyes."""

    def __init__(self, evictor: Evictor) -> None:
        self._evictor = evictor
        self._tails: dict[int, Run] = {}
        self.needs_keys = evictor.needs_keys

    def inserted(self, run: Run, access: Access, keys: Sequence[Hashable]) -> None:
        self._evictor.inserted(run.blocks[:], run.depth, access, keys)

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        blocks: list[int] = []
        for run in runs:
            blocks += run.blocks
        self._evictor.accessed(blocks, runs[0].depth, access)

    def evictable(self, run: Run) -> None:
        tail = run.blocks[-1]
        self._evictor.evictable(tail)
        self._tails[tail] = run

    def pinned(self, run: Run) -> None:
        tail = run.blocks[-1]
        self._evictor.pinned(tail)
        del self._tails[tail]

    def removed(self, run: Run) -> None:
        self._tails.pop(run.blocks[-1], None)
        for block in run.blocks:
            self._evictor.removed(block)

    def victims(self, count: int, trim: Trim) -> list[int]:
        tails, chosen = self._tails, list[int]()
        going: dict[Run, int] = {}  # how many of its last blocks were chosen and not yet told

        def uncover(block: int) -> int:
            run = tails.pop(block, None)
            if run is None:
                raise PolicyError(f"{type(self._evictor).__name__} chose block {block}, which is no candidate")
            chosen.append(block)
            gone = going.get(run, 0) + 1
            if gone == len(run.blocks):
                going.pop(run, None)
                uncovered = trim(run, gone)
                if uncovered is None:
                    return -1
                run, tail = uncovered, uncovered.blocks[-1]
            else:
                going[run] = gone
                tail = run.blocks[-1 - gone]
            tails[tail] = run
            return tail

        try:
            self._evictor.victims(count, uncover)
        finally:
            for run, gone in going.items():
                trim(run, gone)
        return chosen

    def candidates(self) -> set[int]:
        return self._evictor.candidates()
