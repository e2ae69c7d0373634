"""SIEVE: one FIFO and a hand that walks it from old to young; a visited block is spared once, an unvisited one goes.

Survivors keep their place, so the hand sifts new blocks faster than old ones. The hand steps over blocks in use without
clearing their mark; at the young end it starts its next round at the old one.

Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024.
O(log n) amortised per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable

from cache.access import Access
from cache.evictor.queues import CandidateQueue, QueueEvictor

PLACE_BITS = 48
PLACE_MASK = (1 << PLACE_BITS) - 1


class Sieve(QueueEvictor):
    """A candidate waits for the round in which the hand will next reach it: (round, place in the FIFO)."""

    def __init__(self) -> None:
        super().__init__(1)
        (self.fifo,) = self.queues
        self.visited: set[int] = set()
        self.hand = self.round = 0

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.fifo

    def touch(self, block: int, access: Access) -> None:
        self.visited.add(block)

    def evictable(self, block: int) -> None:
        if block not in self._candidates:
            place = self.fifo.blocks[block] & PLACE_MASK
            self.fifo.blocks[block] = self.round + (place <= self.hand) << PLACE_BITS | place
        super().evictable(block)

    def choose(self) -> int:
        while True:
            block = self.fifo.first_candidate()
            self.round, self.hand = divmod(self.fifo.blocks[block], 1 << PLACE_BITS)
            if block not in self.visited:
                return block
            self.visited.remove(block)
            self.fifo.blocks[block] += 1 << PLACE_BITS
            self.fifo.offer(block)

    def removed(self, block: int) -> None:
        super().removed(block)
        self.visited.discard(block)
