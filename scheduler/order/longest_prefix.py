"""Longest cached prefix first, with ageing: a long wait counts like cached tokens.

Serving what is resident before it is evicted raises the hit rate (Zheng et al., "SGLang: efficient execution of
structured language model programs", NeurIPS 2024, prove it optimal for offline batches); alone it starves requests
that share nothing. So every second of waiting is worth `tokens_per_second` cached tokens, and a cold request passes a
hot one of m matched tokens at the latest m / tokens_per_second seconds later.

Only the `window` oldest requests are looked at, so a step costs as much at 10,000 waiting requests as at `window`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scheduler.order.base import Order, Rank
from scheduler.request import Request


class LongestPrefix(Order):
    """Rank by arrival, reordered within a window by matched tokens + age."""

    static = False

    def __init__(self, tokens_per_second: float = 500.0, window: int = 64) -> None:
        """Raises ValueError unless ageing and window are positive."""
        if not tokens_per_second > 0:
            raise ValueError(f"order.tokens_per_second must be positive (nothing may starve), got {tokens_per_second}")
        if window < 1:
            raise ValueError(f"order.window must be 1 or more requests, got {window}")
        self.tokens_per_second = tokens_per_second
        self.window = window

    def rank(self, request: Request) -> Rank:
        return (request.index,)

    def candidates(self, queue: Sequence[Request], now: float, matched: Callable[[Request], int]) -> Iterable[Request]:
        def worth(request: Request) -> float:
            return matched(request) + self.tokens_per_second * (now - request.arrival)

        return sorted(queue[: self.window], key=worth, reverse=True)  # stable: the older one on a tie
