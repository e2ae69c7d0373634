"""From `watch=true` to a watcher: a dashboard in a terminal, plain lines elsewhere, nothing at all where it is false.

Knows nothing of any experiment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omegaconf import DictConfig
from rich.console import Console

from experiments.live.dashboard import Dashboard, Name
from experiments.live.lines import Lines
from experiments.live.watcher import Screen, Watcher
from experiments.workload.base import Workload


@contextmanager
def watching(
    cfg: DictConfig, title: str, requests: Callable[[], int | None], name: Name | None = None
) -> Iterator[Watcher | None]:
    """The watcher of one run, until it ends; None unless `cfg.watch`. Draws on standard error.

    `requests`: how many there will be, where that is known, asked only if somebody watches; `name`: how token
    ids are shown to people.
    """
    if not cfg.get("watch"):
        yield None
        return
    console = Console(stderr=True, highlight=False)
    screen: Screen = Dashboard(console, name) if console.is_terminal else Lines(sys.stderr)
    watcher = Watcher(title, screen, requests())
    try:
        yield watcher
        watcher.end()
    finally:
        screen.close()


def requests_of(workload: Workload) -> int | None:
    """How many requests a workload has, its limit considered; None where only a walk over it would tell."""
    found = workload.expected_requests()
    if workload.limit is None or found is None:
        return workload.limit if found is None else found
    return min(workload.limit, found)
