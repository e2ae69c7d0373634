"""What a report of runs is, whatever experiment they are of: a table, files made of it, a few words at the end.

Knows nothing of any experiment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SweepReport(ABC):
    """What was written, and the table to show."""

    folder: Path
    frame: DataFrame
    notes: list[str]
    files: list[Path] = field(default_factory=list)

    @property
    def plots(self) -> list[Path]:
        """The images among the files."""
        return [path for path in self.files if path.suffix in (".png", ".svg")]

    def rows(self) -> list[Row]:
        """The whole table, None where there is no value."""
        return rows_of(self.frame)

    @abstractmethod
    def summary(self) -> Row:
        """What one tracked run may say of all runs."""

    @abstractmethod
    def show(self) -> None:
        """The table and the notes, on standard error."""


def rows_of(frame: DataFrame) -> list[Row]:
    """A frame as dictionaries, None where there is no value."""
    rows: Any = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return list(rows)
