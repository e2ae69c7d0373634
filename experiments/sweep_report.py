"""What the end of a sweep needs of a report, whatever experiment it is of. Knows nothing of any."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

Row = dict[str, Any]


class SweepReport(Protocol):
    """Files that were written, and the same numbers for a tracker and for a person."""

    @property
    def files(self) -> list[Path]:
        """All that was written."""

    @property
    def plots(self) -> list[Path]:
        """The images among the files."""

    def rows(self) -> list[Row]:
        """The whole table."""

    def summary(self) -> Row:
        """What one tracked run may say of all runs."""

    def show(self) -> None:
        """The table and the notes, on standard error."""
