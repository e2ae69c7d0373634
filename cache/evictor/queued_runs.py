"""Policies made of queues over whole runs: the counterpart of `queues.py`, with the same victims.

A subclass makes its `PieceQueue`s and says three things:

    admit    which queue new blocks enter: one for all, or one per stretch where they differ in what is remembered
    touch    what a hit does to a run: mostly `renew` (all of it becomes one piece at the young end of a queue), or
             `renew_by` (depending on where a piece stands), or a mark on its pieces
    choose   which candidate loses how many of its last blocks in a row, before the policy would look again

and, where it remembers keys (`needs_keys`), `gone`. `run.rank` is the list of the run's pieces, front to back, never
empty while the run is resident; `run.keys` are the keys of its blocks.

An event is a whole call of `inserted` or `accessed`: its blocks get one stamp, so they enter a queue deepest first.
What overflows goes on after all of them have moved (`spill`), under stamps of its own, since it may lie in other
chains. Single pieces go by `move`, parts of them after `cut`, each under a new `tick`. A policy whose candidates do not
leave in the order of their queue overrides `turn`; one that keeps pieces in an order of its own follows `cut` and
`discard`.

O(1) per piece touched, O(log n) per candidate, whatever the length of the runs. Knows nothing of what a queue is for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.pieces import Piece, PieceQueue
from cache.evictor.runs import RunPolicy, Trim
from cache.run import Run

Entrance = tuple[int, PieceQueue]
"""(place behind the last block of a stretch of new ones, the queue they enter)"""


class QueuedRuns(RunPolicy):
    """Subclasses say where blocks enter, what a hit does and who goes."""

    uniform = False

    def __init__(self, num_queues: int) -> None:
        self.queues = [PieceQueue() for _ in range(num_queues)]
        self.capacity = 0
        """The most blocks that were resident at once."""
        self._num_resident = 0
        self._clock = 0

    @abstractmethod
    def admit(self, keys: Sequence[Hashable], access: Access) -> PieceQueue | list[Entrance]:
        """The queue that new blocks enter, along one chain: one for all of them, or stretches of them, front to back.

        `keys` is empty unless the policy needs them.
        """

    @abstractmethod
    def touch(self, run: Run, stamp: int) -> None:
        """A request hit the run, which is in use. Of one request the deepest run comes first."""

    @abstractmethod
    def choose(self, most: int) -> tuple[Run | None, int]:
        """The candidate to evict from and how many of its last blocks, at most `most` and at most its last piece.

        None where there is no candidate.
        """

    def first_above(self, share: int, queue: PieceQueue, other: PieceQueue, most: int) -> tuple[Run | None, int]:
        """What `choose` answers who evicts from `queue` while it holds more than `share` blocks, else from `other`; and
        where the one has no candidate, from the other."""
        over = queue.size - share
        run = queue.first_candidate()
        if over <= 0 or run is None:
            run = other.first_candidate() or run
            over = most
        piece: Piece | None = run.rank[-1] if run else None
        return run, min(most, over, piece.stop - piece.start) if piece else 0

    def gone(self, piece: Piece, keys: Sequence[Hashable]) -> None:
        """The last blocks of a piece have left its queue. `keys`: theirs, in the order in which they left."""
        return

    def turn(self, piece: Piece) -> int:
        """When a candidate, of which this is the last piece, leaves: lower first among the candidates of its queue."""
        return piece.stamp

    def tick(self) -> int:
        """A new stamp: what enters under it is younger than everything that entered before."""
        self._clock += 1
        return self._clock

    def inserted(self, runs: Sequence[Run], access: Access, keys: Sequence[Hashable]) -> None:
        stamp, admitted = self.tick(), self.admit(keys, access)
        first = runs[0].depth
        for run in reversed(runs):
            if run.rank is not None:
                raise PolicyError(f"the run that ends in block {run.blocks[-1]} was inserted twice")
            start, stop = run.depth, run.depth + len(run.blocks)
            self._num_resident += stop - start
            if isinstance(admitted, PieceQueue):
                piece = Piece(run, admitted, stamp, start, stop)
                admitted.append(piece)
                run.rank = [piece]
            else:
                run.rank = _pieces(run, admitted, first, stamp)
        if self._num_resident > self.capacity:
            self.capacity = self._num_resident

    def accessed(self, runs: Sequence[Run], access: Access) -> None:
        stamp = self.tick()
        for run in reversed(runs):
            self.touch(run, stamp)

    def renew(self, run: Run, queue: PieceQueue, stamp: int) -> None:
        """All of a run in use becomes one piece, without a mark, at the young end of a queue."""
        pieces: list[Piece] = run.rank
        for piece in pieces:
            piece.queue.unlink(piece)
        piece = pieces[-1]
        if len(pieces) > 1:
            for other in pieces[:-1]:
                self.discard(other)
            piece.start = run.depth
            del pieces[:-1]
        piece.queue, piece.stamp, piece.mark = queue, stamp, 0
        queue.append(piece)

    def renew_by(self, into: Mapping[PieceQueue, PieceQueue], run: Run, stamp: int) -> None:
        """Of a run in use, what stands in a queue of `into` goes, without a mark, to the young end of the one it names
        there, neighbours as one piece; the rest stays."""
        kept: list[Piece] = []
        moved = False
        for piece in reversed(run.rank):
            queue = into.get(piece.queue)
            if queue is None:
                moved = False
            else:
                piece.queue.unlink(piece)
                if moved and kept[-1].queue is queue:
                    behind = kept[-1]
                    behind.start = piece.start
                    queue.size += piece.stop - piece.start
                    self.discard(piece)
                    continue
                moved = True
                piece.queue, piece.stamp, piece.mark = queue, stamp, 0
                queue.append(piece)
            kept.append(piece)
        kept.reverse()
        run.rank = kept

    def move(self, piece: Piece, queue: PieceQueue, stamp: int) -> None:
        """A piece goes to the young end of a queue; where it is the tail of a candidate, that may leave from there."""
        run, old = piece.run, piece.queue
        old.unlink(piece)
        piece.queue, piece.stamp = queue, stamp
        queue.append(piece)
        if run.entry is not None and run.rank[-1] is piece:
            old.withdraw(run)
            queue.offer(run, self.turn(piece))

    def spill(self, queue: PieceQueue, most: int, into: PieceQueue) -> None:
        """The oldest blocks of a queue, in use or not, go to the young end of another until `most` are left."""
        while (over := queue.size - most) > 0:
            piece = queue.oldest
            assert piece is not None
            if over < piece.stop - piece.start:
                piece = self.cut(piece, piece.stop - over)
            self.move(piece, into, self.tick())

    def cut_last(self, piece: Piece) -> Piece:
        """The last block of a piece, as a piece of its own."""
        return piece if piece.stop - piece.start == 1 else self.cut(piece, piece.stop - 1)

    def cut(self, piece: Piece, at: int) -> Piece:
        """Divide a piece before depth `at`; it keeps its front, and the rest, a piece of its own, is returned."""
        back = Piece(piece.run, piece.queue, piece.stamp, at, piece.stop, piece.mark)
        piece.stop = at
        piece.queue.append_behind(piece, back)
        pieces: list[Piece] = piece.run.rank
        pieces.insert(pieces.index(piece) + 1, back)
        return back

    def discard(self, piece: Piece) -> None:
        """A piece is no more: evicted, removed, or taken up by the one behind it."""
        return

    def split(self, head: Run, tail: Run) -> None:
        pieces: list[Piece] = tail.rank
        at, i = tail.depth, 0
        while pieces[i].stop <= at:
            i += 1
        if pieces[i].start < at:
            self.cut(pieces[i], at)
            i += 1
        head.rank = pieces[:i]
        for piece in head.rank:
            piece.run = head
        del pieces[:i]

    def join(self, head: Run, tail: Run) -> bool:
        for piece in tail.rank:
            piece.run = head
        head.rank += tail.rank
        return True

    def evictable(self, run: Run) -> None:
        if run.entry is not None:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} became evictable twice")
        piece: Piece = run.rank[-1]
        piece.queue.offer(run, self.turn(piece))

    def pinned(self, run: Run) -> None:
        if run.entry is None:
            raise PolicyError(f"the run that ends in block {run.blocks[-1]} was pinned but is no candidate")
        run.rank[-1].queue.withdraw(run)

    def removed(self, run: Run) -> None:
        if run.entry is not None:
            self.pinned(run)
        self._num_resident -= len(run.blocks)
        for piece in run.rank:
            piece.queue.unlink(piece)
            self.discard(piece)
        run.rank = None

    def victims(self, count: int, trim: Trim) -> None:
        needs_keys = self.needs_keys
        while count:
            run, going = self.choose(count)
            if run is None:
                raise PolicyError(f"{type(self).__name__} was asked for a victim and has no candidate")
            pieces: list[Piece] = run.rank
            piece = pieces[-1]
            queue = piece.queue
            keys = run.keys[: -going - 1 : -1] if needs_keys and run.keys else ()
            if going == piece.stop - piece.start:
                queue.withdraw(run)
                queue.unlink(piece)
                pieces.pop()
                piece.stop = piece.start
            else:
                queue.size -= going
                piece.stop -= going
            self._num_resident -= going
            self.gone(piece, keys)
            if piece.stop == piece.start:
                self.discard(piece)
            candidate = trim(run, going)
            if candidate is not None and candidate.entry is None:
                self.evictable(candidate)
            count -= going

    def candidates(self) -> set[int]:
        return set[int]().union(*(queue.candidates() for queue in self.queues))


def _pieces(run: Run, entrances: list[Entrance], first: int, stamp: int) -> list[Piece]:
    """A new run in as many pieces as it changes queues, the deepest first into its queue; the first of all new blocks
    lies at depth `first`."""
    pieces: list[Piece] = []
    start, stop = run.depth, run.depth + len(run.blocks)
    for i in range(len(entrances) - 1, -1, -1):
        place, queue = entrances[i]
        end, begin = min(first + place, stop), max(first + entrances[i - 1][0], start) if i else start
        if begin >= end:
            continue
        if pieces and pieces[-1].queue is queue:
            pieces[-1].start = begin
            queue.size += end - begin
        else:
            piece = Piece(run, queue, stamp, begin, end)
            queue.append(piece)
            pieces.append(piece)
    pieces.reverse()
    return pieces
