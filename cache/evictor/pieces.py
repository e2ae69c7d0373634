"""Queues of pieces: consecutive blocks of a run that entered a queue together, deepest first.

    run      [ block 4 │ 5  6  7  8 │ 9 ]        a run in three pieces, in up to three queues
    queue    oldest ⇄ [9] ⇄ [20 … 24] ⇄ [5 … 8] ⇄ youngest

What one event puts into a queue lies along one chain, so a block's place in a queue is told by the event's number (the
piece's `stamp`) and, within it, by its depth: deeper blocks are older. Cutting a piece therefore moves nothing, and of
the runs that may lose their tails no two tails in a queue have one stamp.

A queue links its pieces, in use or not, from old to young, and keeps the runs whose *tail* piece stands in it and may
leave in a heap; entries of runs pinned or moved since are skipped when they surface. O(1) per piece that moves,
O(log n) per candidate.

Knows nothing of what a queue is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from cache.run import Run

Entry = tuple[int, int, Run]
"""(turn, serial number so that runs are never compared, run)"""


class Piece:
    """Blocks `start` to `stop` (depths in the chain) of a run, all in one queue since one event."""

    __slots__ = ("mark", "older", "queue", "run", "stamp", "start", "stop", "younger")

    def __init__(self, run: Run, queue: PieceQueue, stamp: int, start: int, stop: int, mark: int = 0) -> None:
        self.run = run
        self.queue = queue
        self.stamp = stamp
        self.start = start
        self.stop = stop
        self.mark = mark
        """The policy's own, the same for all its blocks: hits, a bit, …"""
        self.older: Piece
        self.younger: Piece

    def __len__(self) -> int:
        return self.stop - self.start


class PieceQueue:
    """One queue, whose length is counted in blocks."""

    def __init__(self) -> None:
        self.size = 0
        self._end = end = Piece.__new__(Piece)  # between the youngest and the oldest
        end.older = end.younger = end
        self._heap: list[Entry] = []
        self._serial = 0
        self._num_live = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Piece]:
        """Its pieces, oldest first."""
        piece = self._end.younger
        while piece is not self._end:
            yield piece
            piece = piece.younger

    @property
    def oldest(self) -> Piece | None:
        """The piece whose last block is the oldest here, in use or not."""
        piece = self._end.younger
        return None if piece is self._end else piece

    @property
    def youngest(self) -> Piece | None:
        """The piece whose first block entered last."""
        piece = self._end.older
        return None if piece is self._end else piece

    def append(self, piece: Piece) -> None:
        """A piece enters at the young end."""
        self.size += piece.stop - piece.start
        self._link(piece, self._end)

    def append_behind(self, piece: Piece, back: Piece) -> None:
        """`back` was cut off the end of `piece`: its blocks are just older, and were counted already."""
        self._link(back, piece)

    def unlink(self, piece: Piece) -> None:
        """What is left of a piece leaves."""
        self.size -= piece.stop - piece.start
        piece.older.younger, piece.younger.older = piece.younger, piece.older

    def offer(self, run: Run, turn: int) -> None:
        """The run's tail may leave from now on; lower turns go first."""
        heap = self._heap
        self._serial += 1
        run.entry = entry = (turn, self._serial, run)
        self._num_live += 1
        if len(heap) > 2 * self._num_live + 64:
            heap[:] = [old for old in heap if old[2].entry is old]
            heap.append(entry)
            heapify(heap)
        else:
            heappush(heap, entry)

    def withdraw(self, run: Run) -> None:
        """The run's tail may leave no more."""
        run.entry = None
        self._num_live -= 1

    def first_candidate(self) -> Run | None:
        """The run whose tail is the first of this queue to leave."""
        heap = self._heap
        while heap:
            entry = heap[0]
            run = entry[2]
            if run.entry is entry:
                return run
            heappop(heap)
        return None

    def candidates(self) -> set[int]:
        """The last block of every run that may lose its tail from here."""
        return {run.blocks[-1] for entry in self._heap if (run := entry[2]).entry is entry}

    def _link(self, piece: Piece, younger: Piece) -> None:
        older = younger.older
        piece.older, piece.younger = older, younger
        older.younger = younger.older = piece
