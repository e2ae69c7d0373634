"""What a report of runs is, whatever experiment they are of: a table, files made of it, a few words at the end.

Knows nothing of any experiment.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.atomic import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SweepReport(ABC):
    """What was written, and the table to show."""

    folder: Path
    frame: DataFrame
    notes: list[str]
    files: list[Path] = field(default_factory=list, kw_only=True)

    @property
    def plots(self) -> list[Path]:
        """The images among the files."""
        return [path for path in self.files if path.suffix in (".png", ".svg")]

    def add(self, name: str, data: bytes) -> None:
        """One more file of the report, whole or not at all. Raises OSError."""
        write_whole(self.folder / name, data)
        self.files.append(self.folder / name)

    def add_frame(self, name: str, frame: DataFrame) -> None:
        """A table as parquet."""
        buffer = io.BytesIO()
        frame.to_parquet(buffer)
        self.add(name, buffer.getvalue())

    def add_figures(self, figures: Mapping[str, Figure]) -> dict[str, bytes]:
        """Every figure as PNG and SVG, named by its key; returns the PNGs."""
        from experiments.plots.style import render

        images = {}
        for name, figure in figures.items():
            for suffix, data in render(figure).items():
                self.add(f"{name}.{suffix}", data)
                if suffix == "png":
                    images[name] = data
        return images

    def rows(self) -> list[Row]:
        """The whole table, None where there is no value."""
        return rows_of(self.frame)

    def tables(self) -> dict[str, list[Row]]:
        """What a tracker gets, by name."""
        return {"report": self.rows()}

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
