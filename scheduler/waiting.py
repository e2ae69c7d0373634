"""Requests that hold no blocks, in the order of a policy.

Knows nothing of why they wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

from scheduler.order.base import Order
from scheduler.request import Request


class Waiting:
    """A list sorted by the policy's rank. Adding and removing is a binary search and a move of pointers."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._queue: list[Request] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    def add(self, request: Request) -> None:
        """Put it where its rank belongs, which for one that was preempted is in front of those that came later."""
        insort(self._queue, request, key=self.order.rank)

    def remove(self, request: Request) -> None:
        """Take it out. Raises KeyError where it is not here."""
        place = bisect_left(self._queue, self.order.rank(request), key=self.order.rank)
        if place == len(self._queue) or self._queue[place] is not request:
            raise KeyError(f"request {request.index} is not waiting")
        del self._queue[place]

    def candidates(self, now: float, matched: Callable[[Request], int]) -> Iterable[Request]:
        """Best first, as of now. Must not be walked on after a change."""
        return self.order.candidates(self._queue, now, matched)
