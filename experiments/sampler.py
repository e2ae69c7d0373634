"""The time series of a served workload: who runs and waits, and how full the pool is.

Knows nothing of latencies, and nothing of whether the time is real.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from experiments.latency import Row
from scheduler.request import Request
from scheduler.scheduler import Scheduler
from scheduler.step import Outcome, Step


class Sampler:
    """The time series: a row per `every` simulated seconds, and the water level of the pool weighted by time."""

    def __init__(self, scheduler: Scheduler, log: Callable[[Row], None], every: float) -> None:
        self._scheduler, self._log, self._every = scheduler, log, every
        self._due = 0.0
        self._tokens = self._hits = self._outputs = 0
        self._area = self._time = 0.0
        self.steps = self.peak = self.peak_waiting = self.peak_running = 0

    @property
    def mean(self) -> float:
        """Blocks in use, on average over the time of all steps."""
        return self._area / self._time if self._time else 0.0

    def watch(self, step: Step, outcome: Outcome, start: float, end: float) -> None:
        """After every commit."""
        scheduler = self._scheduler
        self.steps += outcome.repeats
        self._area += step.used_blocks * (end - start)
        self._time += end - start
        self.peak = max(self.peak, step.used_blocks)
        self.peak_waiting = max(self.peak_waiting, len(scheduler.waiting))
        in_step = len(step.decodes) + len(step.chunks)  # who ends with this step runs no more, but did
        self.peak_running = max(self.peak_running, scheduler.running.num_branches, in_step)
        if end >= self._due:
            self._due = (end // self._every + 1) * self._every if self._every else end
            self.row(end)

    def finished(self, request: Request) -> None:
        """Count it into the hit rate so far."""
        self._tokens += len(request.prompt) if request.hit_tokens is not None else 0
        self._hits += request.hit_tokens or 0
        self._outputs += request.num_outputs

    def row(self, time: float) -> None:
        """Log one row now."""
        scheduler, allocator = self._scheduler, self._scheduler.manager.allocator
        free = allocator.num_free
        self._log(
            {
                "time": time,
                "used_blocks": allocator.num_in_use,
                "cached_blocks": allocator.num_idle,
                "free_blocks": None if free == inf else int(free),
                "running": scheduler.running.num_branches,
                "waiting": len(scheduler.waiting),
                "swapped": len(scheduler.swapped),
                "preemptions": scheduler.num_preemptions,
                "hit_rate": self._hits / self._tokens if self._tokens else None,
                "output_tokens": self._outputs,
            }
        )
