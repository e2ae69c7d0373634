"""Exact LRU at any pool sizes, from one walk over the requests for each set of them that fits.

Knows nothing of other policies or of plots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.stack_distance import LruCurve
from experiments.workload.base import Request


@dataclass(frozen=True, slots=True)
class Point:
    """One pool: counts over the requests that fit into it."""

    num_blocks: float
    served: int
    full_blocks: int
    prompt_tokens: int
    hit_blocks: int
    ceiling_blocks: int

    @property
    def block_hit_rate(self) -> float:
        """Hit blocks of full blocks."""
        return self.hit_blocks / self.full_blocks if self.full_blocks else 0.0


def lru_curve(requests: Sequence[Request], block_size: int, largest: float) -> LruCurve:
    """The curve of the requests that fit into a pool of `largest` blocks."""
    served = [r for r in requests if -(-len(r.tokens) // block_size) <= largest]
    curve = LruCurve(block_size, len(served))
    for request in served:
        curve.observe(request.tokens, request.extra_keys.encode())
    return curve


def lru_points(requests: Sequence[Request], block_size: int, sizes: Sequence[float]) -> list[Point]:
    """One point per pool size, in order. Sizes that refuse the same requests share a walk."""
    needed = sorted(-(-len(r.tokens) // block_size) for r in requests)
    curves: dict[int, LruCurve] = {}
    points = []
    for size in sizes:
        served = bisect_right(needed, size)
        if served not in curves:
            curves[served] = lru_curve(requests, block_size, size)
        curve = curves[served]
        points.append(
            Point(size, served, curve.full_blocks, curve.prompt_tokens, curve.hits_at(size), curve.ceiling_blocks)
        )
    return points
