"""Highest priority first, by arrival within one priority.

A stream of urgent requests can starve the others: that is what a strict priority means.
"""

from __future__ import annotations

from scheduler.order.base import Order, Rank
from scheduler.request import Request


class Priority(Order):
    """By the request's own number; higher is more urgent."""

    def rank(self, request: Request) -> Rank:
        return (-request.priority, request.index)
