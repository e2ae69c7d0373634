"""From `watch=true` to a watcher: a dashboard in a terminal, plain lines elsewhere, nothing at all where it is false.

Knows nothing of any experiment.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from omegaconf import DictConfig
from rich.console import Console

from experiments.live.dashboard import Dashboard, Name
from experiments.live.lines import Lines
from experiments.live.watcher import Screen, Watcher


@contextmanager
def watching(
    cfg: DictConfig, title: str, total: int | None = None, name: Name | None = None
) -> Iterator[Watcher | None]:
    """The watcher of one run, until it ends; None unless `cfg.watch`. Draws on standard error.

    `total`: requests of the run, where that is known; `name`: how token ids are shown to people.
    """
    if not cfg.get("watch"):
        yield None
        return
    console = Console(stderr=True, highlight=False)
    screen: Screen = Dashboard(console, name) if console.is_terminal else Lines(sys.stderr)
    watcher = Watcher(title, screen, total)
    try:
        yield watcher
        watcher.end()
    finally:
        screen.close()
