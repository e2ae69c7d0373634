"""A joint sweep as a page, tables (parquet and markdown) and plots.

Called by `experiments.report`, because the config of every record names it (`report:` in `conf/sweep/joint.yaml`).

Knows nothing of how the runs were made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.joint.differences import compare, effects
from experiments.joint.measures import MEASURES
from experiments.joint.page import page
from experiments.joint.table import Axes, table
from experiments.joint.words import MOST_SHOWN, choices, combinations, notes_of, policy_text, setting_text
from experiments.record import StoredRecord
from experiments.reporting.markdown import as_markdown, workload_of
from experiments.show import show_table
from experiments.sweep_report import Row, SweepReport, rows_of

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class JointReport(SweepReport):
    """A row per combination and setting."""

    axes: Axes
    effects: DataFrame

    def summary(self) -> Row:
        """What one tracked run may say of all: the best combination of every setting, by every measure."""
        best: Row = {}
        for measure in MEASURES:
            for _, part in self.frame.groupby(self.axes.settings, dropna=False):
                row = rows_of(part.sort_values(measure.key, ascending=not measure.more_is_better))[0]
                best.setdefault(measure.key, {})[setting_text(row, self.axes)] = {
                    "policy": policy_text(row, self.axes),
                    "mean": row[measure.key],
                    "difference": row[f"{measure.key}_difference"],
                    "verdict": row[f"{measure.key}_verdict"],
                }
        return {"combinations": len(self.frame), "seeds": int(self.frame.seeds.max()), "best": best}

    def show(self) -> None:
        """What each choice is worth, the best combinations, and the notes, on standard error."""
        if len(self.effects):
            show_table("what each choice alone is worth, the others averaged", *choices(self.effects, self.axes))
        title = f"the {MOST_SHOWN} best combinations by goodput, and the baseline"
        show_table(title, *combinations(self.frame, self.axes, MOST_SHOWN))
        for note in self.notes:
            print(f"note: {note}", file=sys.stderr)
        print(f"report: {self.folder / 'report.html'}", file=sys.stderr)


def write_report(folder: Path, records: Sequence[StoredRecord], notes: Sequence[str]) -> JointReport:
    """`report.html`, `report.md`, `report.parquet`, `choices.parquet` and plots into `folder`.

    Raises UserError where the records do not compare, OSError where writing fails.
    """
    from experiments.plots.joint import draw_joint

    frame, axes = table(folder, records)
    points, alone = compare(frame, axes), effects(frame, axes)
    found = notes_of(frame, points, axes, records)
    report = JointReport(folder, points, [*notes, *found], axes=axes, effects=alone)
    folder.mkdir(parents=True, exist_ok=True)
    figures = report.add_figures(draw_joint(points, alone, axes))
    report.add_frame("report.parquet", points)
    if len(alone):
        report.add_frame("choices.parquet", alone)
    report.add("report.md", markdown(report, records).encode())
    report.add("report.html", page(report, records, figures).encode())
    return report


def markdown(report: JointReport, records: Sequence[StoredRecord]) -> str:
    """The report for people who read text."""
    lines = [
        f"# {len(records)} timed runs over {workload_of(records[0])}",
        "",
        *(f"> {note}\n" for note in report.notes),
        *(f"![{path.stem}]({path.name})\n" for path in report.plots if path.suffix == ".png"),
    ]
    for title, (columns, rows) in (
        ("What each choice alone is worth", choices(report.effects, report.axes)),
        ("Every combination", combinations(report.frame, report.axes)),
    ):
        if rows:
            lines += [f"## {title}", "", as_markdown(columns, rows), ""]
    return "\n".join(lines)
