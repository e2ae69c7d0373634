"""LRU in the shadow of another policy, for the price of a counter per request: who would have hit more of late?

LRU holds the blocks of the latest requests, as many as fill the pool. So it is enough to know which request last used a
block, and how many blocks each request was the last to use: no second cache is kept. (Approximate where a policy has
forgotten a block that LRU would still hold, and at the edge of the oldest request.)

Where LRU would have hit more, by more than chance would bring, it leads for some turnovers of the pool; then the policy
is on trial again, and if it fails again LRU leads for twice as long, up to a bound. So a policy that suits the traffic
costs nothing, one that does not costs little, and one that needs to learn gets its chance.

Knows nothing of the policy.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

FADE, TRIAL, PAUSE = 1.0, 2.0, 4.0
"""In turnovers of the pool: half-life of the score, least time on trial, first time LRU leads."""
LONGEST = 16.0
"""Turnovers that LRU leads at most before the policy is on trial again."""
SHORTEST = 30
"""Requests that a turnover takes at least: in a small pool it would be over before there is anything to compare."""
LOSS = 0.005
"""Share of all blocks asked for that may be lost to LRU before it leads: half a point of hit rate."""
CHANCE = 1.0
"""Standard deviations of its sum, over requests, by which the difference must exceed what chance would bring."""


class Visit:
    """One request: when it came, how many histories its path has, and the depth at which the last of them begins."""

    __slots__ = ("end", "growing", "held", "index", "num_runs", "num_tokens", "stack", "start", "time")

    def __init__(self, index: int, time: float, num_tokens: int) -> None:
        self.index, self.time, self.num_tokens = index, time, num_tokens
        self.num_runs = self.start = 0
        self.stack = 0
        """Blocks it was the last to use."""
        self.growing: Any = None
        """The history of what it added last, and the depth at which that ended."""
        self.end = 0
        self.held = False
        """Whether LRU would still hold them."""


class Rival:
    """Keeps the score between LRU and a policy; `leads` says who chooses."""

    def __init__(self) -> None:
        self.leads = False
        self._held: dict[int, Visit] = {}
        self._total = self._capacity = 0
        self._ours = self._lrus = self._asked = self._behind = self._variance = 0.0
        self._turnovers, self._since, self._pause = 0.0, 0.0, PAUSE

    def visit(self, index: int) -> Visit | None:
        """The request of this index, as long as LRU would hold a block of it."""
        return self._held.get(index)

    def begun(self, visit: Visit, capacity: int) -> None:
        """A request comes; LRU gives up its oldest ones where they no longer fit."""
        self._capacity = capacity
        self._variance += self._behind**2
        self._behind = 0.0
        held = self._held
        held[visit.index] = visit
        visit.held = True
        while self._total > capacity and len(held) > 1:
            self._gone(held[next(iter(held))])

    def wanted(self, last: Visit, count: int, resident: bool) -> None:
        """Blocks last used by the request `last` are asked for: who had them?"""
        self._lrus += count * last.held
        self._ours += count * resident
        self._behind += count * (last.held - resident)
        self.left(last, count)

    def left(self, last: Visit, count: int) -> None:
        """Blocks are no longer those of the request `last`."""
        last.stack -= count
        if last.held:
            self._total -= count
            if not last.stack:
                self._gone(last)

    def _gone(self, visit: Visit) -> None:
        del self._held[visit.index]
        visit.held = False
        self._total -= visit.stack

    def touched(self, visit: Visit, count: int) -> None:
        """Blocks are now those of this request."""
        if not visit.held:  # it had lost its last block to itself
            self._held[visit.index] = visit
            visit.held = True
        visit.stack += count
        self._total += count
        self._asked += count

    def entered(self, count: int) -> None:
        """New blocks turn the pool over, and old hits fade."""
        turned = min(count / max(self._capacity, 1), 1 / SHORTEST)
        self._turnovers += turned
        fade = 0.5 ** (turned / FADE)
        self._ours, self._lrus, self._asked = self._ours * fade, self._lrus * fade, self._asked * fade
        self._variance *= fade

    def judge(self) -> bool:
        """Whether the lead changes now."""
        waited = self._turnovers - self._since
        if self.leads:
            if waited < self._pause:
                return False
            self._pause = min(2 * self._pause, LONGEST)
        elif waited < TRIAL or self._lrus - self._ours <= max(CHANCE * sqrt(self._variance), LOSS * self._asked):
            return False
        self.leads, self._since = not self.leads, self._turnovers
        self._ours = self._lrus = self._asked = self._behind = self._variance = 0.0
        return True
