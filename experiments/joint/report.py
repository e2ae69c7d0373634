"""A joint sweep as a page, tables (parquet and markdown) and plots.

Called by `experiments.report`, because the config of every record names it (`report:` in `conf/sweep/joint.yaml`).

Knows nothing of how the runs were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.joint.differences import compare, effects
from experiments.joint.page import page
from experiments.joint.results import JointReport
from experiments.joint.table import table
from experiments.joint.words import choices, combinations, notes_of
from experiments.record import StoredRecord
from experiments.reporting.markdown import as_markdown
from experiments.reporting.names import workload_of


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
