"""Who did what when: for every request, intervals that cover its life from arrival to end without a gap.

    waiting → prefilling → decoding → preempted → recomputing → decoding

Watches a step loop; small runs only, since every step looks at every request. Knows nothing of how it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.request import Request
from scheduler.scheduler import Scheduler
from scheduler.step import Outcome, Step


@dataclass(slots=True)
class Interval:
    """One request in one state, in seconds."""

    request: int
    state: str
    start: float
    end: float


class Timeline:
    """Intervals by request, and the water level by step. Give `watch` to a loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.intervals: list[Interval] = []
        self.levels: list[dict[str, float]] = []
        """At both ends of every step: `time`, `used_blocks`, `cached_blocks`, `free_blocks`."""
        self._latest: dict[int, Interval] = {}

    def watch(self, step: Step, outcome: Outcome, start: float, end: float) -> None:
        """After every commit."""
        scheduler = self.scheduler
        states: dict[Request, str] = dict.fromkeys(scheduler.running.requests, "held up")
        for request in scheduler.waiting:
            states[request] = "preempted" if request.preemptions else "waiting"
        for request in scheduler.swapped:
            states[request] = "swapped out"
        for branch in step.decodes:
            states[branch.request] = "decoding"
        for chunk in step.chunks:
            lost = chunk.start < chunk.branch.computed_before
            states[chunk.branch.request] = "recomputing" if lost else "prefilling"
        for request, state in states.items():
            self._extend(request, state, start, end)
        allocator = scheduler.manager.allocator
        cached = allocator.num_in_use + allocator.num_idle - step.used_blocks  # as it was while the step ran
        level = {"used_blocks": step.used_blocks, "cached_blocks": cached, "free_blocks": allocator.num_free}
        self.levels += [{"time": start, **level}, {"time": end, **level}]

    def _extend(self, request: Request, state: str, start: float, end: float) -> None:
        latest = self._latest.get(request.index)
        if latest is None and request.arrival < start:
            latest = self._add(request.index, "waiting", request.arrival, start)
        if latest is not None and latest.state == state:
            latest.end = end
        else:
            self._add(request.index, state, start, end)

    def _add(self, request: int, state: str, start: float, end: float) -> Interval:
        interval = Interval(request, state, start, end)
        self.intervals.append(interval)
        self._latest[request] = interval
        return interval
