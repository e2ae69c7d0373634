"""The life of a tracked run: start, rows of a time series, and either a result or an abort.

Knows nothing of the record: files are written by `experiments.record`, whether or not anything is tracked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

Row = dict[str, Any]


class Tracker(ABC):
    """One instance tracks one run; leaving the `with` block by an exception aborts it."""

    most_rows: int = 0
    """Rows of a table that it keeps; longer tables reach `finish` without the rest, which the record has."""

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()

    @abstractmethod
    def start(self, folder: Path, name: str, group: str | None, config: Mapping[str, Any]) -> None:
        """Open the run. `folder`: where its files go; `group`: the sweep it belongs to; `config`: resolved.

        Raises UserError where the tracker cannot start.
        """

    @abstractmethod
    def log(self, row: Row) -> None:
        """One row of the time series, in the types of JSON."""

    @abstractmethod
    def finish(self, metrics: Row, tables: Mapping[str, Sequence[Row]], plots: Sequence[Path]) -> None:
        """Close the run with its result. `plots`: image files, png and svg."""

    @abstractmethod
    def abort(self) -> None:
        """Close the run as failed; does nothing where none is open."""
