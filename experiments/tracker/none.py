"""Tracks nothing. Knows nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.tracker.base import Row, Tracker


class NoTracker(Tracker):
    """The null object: the record on disk is all there is."""

    def start(self, folder: Path, name: str, group: str | None, config: Mapping[str, Any]) -> None:
        return

    def log(self, row: Row) -> None:
        return

    def finish(self, metrics: Row, tables: Mapping[str, Sequence[Row]], plots: Sequence[Path]) -> None:
        return

    def abort(self) -> None:
        return
