"""The time series as `series.jsonl`, a line per row as it comes: for `tail -f`, and for machines without W&B.

Knows nothing of the result, which the record holds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.atomic import json_line
from experiments.tracker.base import Row, Tracker

SERIES = "series.jsonl"


class JsonLines(Tracker):
    """Appends whole lines: each is one write, and a write that fails halfway is taken back."""

    def __init__(self) -> None:
        self._file = -1
        self._size = 0

    def start(self, folder: Path, name: str, group: str | None, config: Mapping[str, Any]) -> None:
        self._file = os.open(folder / SERIES, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._size = 0

    def log(self, row: Row) -> None:
        data = f"{json_line(row)}\n".encode()
        try:
            written = os.write(self._file, data)
            if written < len(data):
                os.write(self._file, data[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def finish(self, metrics: Row, tables: Mapping[str, Sequence[Row]], plots: Sequence[Path]) -> None:
        os.fsync(self._file)
        self.abort()

    def abort(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
