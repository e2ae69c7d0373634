"""Requests that hold no blocks, in the order of a policy.

Knows nothing of why they wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from scheduler.order.base import Order
from scheduler.request import Request


class Waiting:
    """A list sorted by the policy's rank: at its ends adding and removing is one look, elsewhere a binary search."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._queue: list[Request] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    def add(self, request: Request) -> None:
        """Put it where its rank belongs, which for one that was preempted is in front of those that came later."""
        queue, rank = self._queue, self.order.rank
        if not queue or rank(queue[-1]) < rank(request):
            queue.append(request)
        else:
            insort(queue, request, key=rank)

    def remove(self, request: Request) -> None:
        """Take it out. Raises KeyError where it is not here."""
        first = bool(self._queue) and self._queue[0] is request
        place = 0 if first else bisect_left(self._queue, self.order.rank(request), key=self.order.rank)
        if place == len(self._queue) or self._queue[place] is not request:
            raise KeyError(f"request {request.index} is not waiting")
        del self._queue[place]

    def candidates(self, now: float, matched: Callable[[Request], int]) -> Iterable[Request]:
        """Best first, as of now. Must not be walked on after a change."""
        return self.order.candidates(self._queue, now, matched)
