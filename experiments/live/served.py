"""A served run, watched: what the steps of a scheduler say, told to a watcher.

Knows nothing of whether the time is real.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.live.watcher import Watcher
from scheduler.loop import Watch
from scheduler.request import Request
from scheduler.scheduler import Scheduler
from scheduler.step import Outcome, Step


def watched(watch: Watch, scheduler: Scheduler, watcher: Watcher | None) -> Watch:
    """`watch`, and after it the watcher: requests looked up, done, running. `watch` itself where nobody looks."""
    if watcher is None:
        return watch
    tell = _Teller(scheduler, watcher)

    def both(step: Step, outcome: Outcome, start: float, end: float) -> None:
        watch(step, outcome, start, end)
        tell.step(step, end)

    return both


class _Teller:
    def __init__(self, scheduler: Scheduler, watcher: Watcher) -> None:
        self._scheduler, self._watcher = scheduler, watcher
        self._clock = 0.0
        self._finished: Sequence[Request] = ()
        self._counted = 0
        watcher.begin(scheduler.manager, self._more)

    def step(self, step: Step, end: float) -> None:
        self._clock = end
        for request in step.admitted:
            if not request.preemptions:
                hits = (request.hit_tokens or 0) // self._scheduler.manager.block_size
                self._watcher.matched(request.prompt, len(request.prompt), hits)
        finished = self._scheduler.outcomes.finished
        if finished is not self._finished:  # whoever takes them leaves a new list
            self._finished, self._counted = finished, 0
        new, self._counted = len(finished) - self._counted, len(finished)
        self._watcher.finished(new)

    def _more(self) -> dict[str, str]:
        scheduler = self._scheduler
        words = f"{scheduler.running.num_branches:,} running, {len(scheduler.waiting):,} waiting"
        preempted = f", {scheduler.num_preemptions:,} preemptions" if scheduler.num_preemptions else ""
        return {"scheduler": words + preempted, "clock": f"{self._clock:,.1f} s"}
