"""First come, first served."""

from __future__ import annotations

from scheduler.order.base import Order, Rank
from scheduler.request import Request


class Fcfs(Order):
    """By arrival."""

    def rank(self, request: Request) -> Rank:
        return (request.index,)
