"""Who goes first: a fixed rank per request, and optionally a look at the cache and the clock.

Knows nothing of blocks or budgets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from scheduler.request import Request

Rank = tuple[float, ...]


class Order(ABC):
    """An order of waiting requests. Stateless: everything it needs is in its arguments."""

    static: bool = True
    """False where `candidates` may change its mind although nobody came or went."""

    @abstractmethod
    def rank(self, request: Request) -> Rank:
        """Lower goes first; unique per request and the same all its life. Also tells whom to preempt last."""

    def candidates(self, queue: Sequence[Request], now: float, matched: Callable[[Request], int]) -> Iterable[Request]:
        """Waiting requests, best first. `queue` is sorted by rank; `matched` counts a request's tokens in the cache."""
        return queue
