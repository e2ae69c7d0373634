"""Paging without sharing: every sequence computes and owns all its blocks. The baseline of every comparison."""

from __future__ import annotations

from cache.allocator.base import Match
from cache.allocator.counting import CountingAllocator
from cache.errors import OutOfBlocks
from cache.sequence import Sequence


class Naive(CountingAllocator):
    """Finds nothing, keeps nothing."""

    def find(self, seq: Sequence, limit: int) -> Match:
        return Match([], 0, self.version)

    def acquire(self, seq: Sequence, match: Match) -> None:
        return

    def promote(self, seq: Sequence, num_full: int) -> None:
        seq.num_immutable_blocks = num_full

    def release(self, seq: Sequence, start: int = 0) -> None:
        free, refs = self._free, self._refs
        for block in reversed(seq.block_table[start:]):
            refs[block] -= 1
            if refs[block] < 0:
                raise self._released_too_often(block)
            if not refs[block]:
                free.append(block)

    def evict(self, count: int) -> None:
        raise OutOfBlocks("without sharing nothing is ever idle")

    def clear(self) -> None:
        return
