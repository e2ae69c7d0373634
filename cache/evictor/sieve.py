"""SIEVE: one FIFO and a hand that walks it from old to young; a visited block is spared once, an unvisited one goes.

Survivors keep their place, so the hand sifts new blocks faster than old ones. The hand steps over blocks in use without
clearing their mark; once the youngest block has gone it starts its next round at the oldest one.

Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024.
O(log n) amortised per candidate, O(1) per touched block.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from cache.access import Access
from cache.evictor.pieces import Piece, PieceQueue
from cache.evictor.queued_runs import QueuedRuns
from cache.evictor.queues import CandidateQueue, QueueEvictor
from cache.evictor.runs import RunPolicy
from cache.run import Run

PLACE_BITS = 48
PLACE_MASK = (1 << PLACE_BITS) - 1


class Sieve(QueueEvictor):
    """A candidate waits for the round in which the hand will next reach it: (round, place in the FIFO)."""

    adapts = False  # the hand may follow the young end for ever, if nothing new is visited before it gets there

    def __init__(self) -> None:
        super().__init__(1)
        (self.fifo,) = self.queues
        self.visited: set[int] = set()
        self.hand = self.round = 0

    def by_run(self) -> RunPolicy | None:
        return SieveRuns() if type(self) is Sieve else None  # a subclass may queue otherwise

    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        return self.fifo

    def touch(self, block: int, access: Access) -> None:
        self.visited.add(block)

    def evictable(self, block: int) -> None:
        if block not in self.fifo.free:
            place = self.fifo.blocks[block] & PLACE_MASK
            self.fifo.blocks[block] = self.round + (place <= self.hand) << PLACE_BITS | place
        super().evictable(block)

    def choose(self) -> int:
        while True:
            block = self.fifo.first_candidate()
            if block < 0:
                return block
            self.round, self.hand = divmod(self.fifo.blocks[block], 1 << PLACE_BITS)
            if block not in self.visited:
                if block == next(reversed(self.fifo.blocks)):
                    self.round, self.hand = self.round + 1, 0
                return block
            self.visited.remove(block)
            self.fifo.blocks[block] += 1 << PLACE_BITS
            self.fifo.offer(block)

    def removed(self, block: int) -> None:
        super().removed(block)
        self.visited.discard(block)


class SieveRuns(QueuedRuns):
    """The same over runs. `mark`: whether a piece was visited; the hand clears it of a candidate's last block alone."""

    def __init__(self) -> None:
        super().__init__(1)
        (self.fifo,) = self.queues
        self.round = 0
        self.hand = 0, 0
        """Stamp and depth of the block it stands at."""

    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue:
        return self.fifo

    def touch(self, run: Run, stamp: int) -> None:
        for piece in run.rank:
            piece.mark = 1

    def turn(self, piece: Piece) -> int:
        stamp, depth = self.hand
        passed = piece.stamp < stamp or (piece.stamp == stamp and piece.stop > depth)
        return self.round + passed << PLACE_BITS | piece.stamp

    def choose(self, most: int) -> tuple[Run | None, int]:
        while (run := self.fifo.first_candidate()) is not None:
            piece: Piece = run.rank[-1]
            turn = run.entry[0]
            going = 1 if piece.mark else min(most, len(piece))
            self.round, self.hand = turn >> PLACE_BITS, (piece.stamp, piece.stop - going)
            if not piece.mark:
                if piece is self.fifo.youngest and going == len(piece):
                    self.round, self.hand = self.round + 1, (0, 0)
                return run, going
            self.cut_last(piece).mark = 0
            self.fifo.withdraw(run)
            self.fifo.offer(run, turn + (1 << PLACE_BITS))
        return None, 0
