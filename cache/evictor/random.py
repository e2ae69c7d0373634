"""Uniformly random among the candidates, from a seed: the baseline that knows nothing. O(1) per event."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random as Generator

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.base import Evictor


class Random(Evictor):
    """Candidates in a list, swapped with the last one on removal."""

    needs_keys = False

    def __init__(self, seed: int = 0) -> None:
        self._random = Generator(seed)
        self._blocks: list[int] = []
        self._place: dict[int, int] = {}
        self._known: set[int] = set()

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
