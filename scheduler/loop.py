"""The one step loop: arrivals in, steps out, whoever executes them.

A real engine and a simulation differ in the executor and the clock alone.

Knows nothing of tensors, cost or text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Protocol

from scheduler.clock import Clock
from scheduler.request import Request
from scheduler.scheduler import Scheduler
from scheduler.step import Outcome, Step


class Executor(Protocol):
    """Does what a step says."""

    def execute(self, step: Step, until: float) -> Outcome:
        """Compute; the clock shows afterwards how long it took. A repeated step ends once it is `until`."""


Watch = Callable[[Step, Outcome, float, float], None]
"""(step, outcome, start, end), called after every commit."""


class StepLoop:
    """Schedule, execute, commit; requests join as they arrive."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Clock,
        arrivals: Iterable[Request] = (),
        watch: Watch | None = None,
        jump: bool = True,
    ) -> None:
        """`arrivals`: requests by arrival time, taken one ahead; `jump`: whether steps without a decision between them
        may be done at once (the decisions are the same)."""
        self.scheduler = scheduler
        self.executor = executor
        self.clock = clock
        self.watch = watch
        self.jump = jump
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)

    @property
    def has_work(self) -> bool:
        """Whether anything is unfinished or still to arrive."""
        return self._next is not None or self.scheduler.has_work

    def run(self) -> Iterator[Request]:
        """Finished requests as they finish, until nothing is left."""
        while self.has_work:
            self.step()
            yield from self.scheduler.take_finished()

    def step(self) -> Step:
        """One decision and its execution; where there is nothing to do, the wait for the next arrival.

        Raises what the executor raises, after the step was undone: the next one tries again. Raises RuntimeError where
        requests wait for nothing, which would be a bug.
        """
        clock, scheduler = self.clock, self.scheduler
        start = clock.now()
        while self._next is not None and self._next.arrival <= start:
            scheduler.add(self._next, start)
            self._next = next(self._arrivals, None)
        until = inf if self._next is None else self._next.arrival
        step = scheduler.schedule(start)
        if step.empty:
            if until < inf:
                clock.wait_until(until)
            elif scheduler.has_work:
                raise RuntimeError(f"{len(scheduler.waiting)} waiting requests can never run: a bug in the scheduler")
            return step
        if not self.jump:
            step.most_repeats = 1
        try:
            outcome = self.executor.execute(step, until)
        except BaseException:  # an interrupt too
            scheduler.undo(step, clock.now())
            raise
        end = clock.now()
        scheduler.commit(step, outcome, end)
        if self.watch is not None:
            self.watch(step, outcome, start, end)
        return step
