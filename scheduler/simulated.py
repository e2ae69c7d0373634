"""An executor without a model: every step takes the time that a cost model says, and the tokens are made up.

Made-up tokens differ from request to request and repeat for none, so they never cause
a hit that the trace does not have.

Knows nothing of what the cost is made of.
"""

from __future__ import annotations

from array import array
from typing import Protocol

import numpy as np

from scheduler.clock import SimulatedClock
from scheduler.request import Branch
from scheduler.step import Outcome, Step, Work

LARGEST_FIRST = 2**31 - 2**24
"""Leaves room below int32's end for the longest output."""


class Cost(Protocol):
    """Seconds of one step."""

    def seconds(self, work: Work) -> float:
        """Time of a step with these sums."""


class SimulatedExecutor:
    """Moves the clock."""

    def __init__(self, cost: Cost, clock: SimulatedClock) -> None:
        self.cost = cost
        self.clock = clock

    def execute(self, step: Step, until: float) -> Outcome:
        """As `Executor.execute`."""
        clock, seconds = self.clock, self.cost.seconds
        clock.advance(seconds(step.work()))
        n, context, done = len(step.decodes), step.decode_context, 1
        while done < step.most_repeats and clock.now() < until:
            context += n
            clock.advance(seconds(Work(n, n, n, context, context)))
            done += 1
        return Outcome(None, done)


def made_up_tokens(branch: Branch, start: int, stop: int) -> array[int]:
    """Output tokens `start` to `stop`: a run of consecutive ids whose first is a hash of request and branch."""
    first = (branch.request.index * 1_000_003 + branch.index * 7919 + 1) * 2654435761 % LARGEST_FIRST
    return array("i", np.arange(first + start, first + stop, dtype=np.intc).tobytes())
