"""A joint sweep as one HTML page that stands alone: findings, figures, tables, what differs, where it was made.

Knows nothing of how the table was made.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.html.render import render_page
from experiments.joint.differences import BETTER, CONFIDENCE
from experiments.joint.measures import MEASURES
from experiments.joint.words import best_first, change_text, choices, combinations, policy_text, setting_text
from experiments.record import StoredRecord
from experiments.reporting.differences import config_differences, machines
from experiments.reporting.names import workload_of
from experiments.sweep_report import rows_of

if TYPE_CHECKING:
    from experiments.joint.results import JointReport

FIGURES = {
    "combinations": (
        "All combinations",
        "Every cell is the mean over seeds. Green is better than the baseline (framed), orange worse, and the deeper "
        "the colour the larger the difference; white cannot be told from the baseline.",
    ),
    "choices": (
        "One choice at a time",
        "How far a single choice moves each number, all else averaged; the bar is the interval of the mean. What "
        "reaches over the line is not distinguishable.",
    ),
}


def page(report: JointReport, records: Sequence[StoredRecord], figures: Mapping[str, bytes]) -> str:
    """The whole page. `figures`: name → PNG."""
    columns, rows = combinations(report.frame, report.axes)
    effect_columns, effect_rows = choices(report.effects, report.axes)
    differing, common = config_differences(records)
    shown = []
    for name, data in figures.items():
        title, text = FIGURES[name]
        shown.append(
            {"title": title, "text": text, "source": f"data:image/png;base64,{base64.b64encode(data).decode()}"}
        )
    return render_page(
        "joint",
        title=f"{len(records)} timed runs over {workload_of(records[0])}",
        question=_question(report),
        tiles=_tiles(report),
        notes=report.notes,
        figures=shown,
        confidence=CONFIDENCE,
        columns=columns,
        rows=rows,
        effect_columns=effect_columns,
        effect_rows=effect_rows,
        differing=differing,
        common=common,
        machines=machines(records),
    )


def _question(report: JointReport) -> str:
    axes = " × ".join([*report.axes.policies, *report.axes.settings]).replace("_", " ")
    return f"Which combination of {axes} serves best, and which differences are more than the luck of the seed?"


def _tiles(report: JointReport) -> list[dict[str, str]]:
    tiles = []
    for measure in MEASURES:
        best: dict[str, Any] = rows_of(best_first(report.frame, measure))[0]
        told = f"best {measure.title}: {policy_text(best, report.axes)}, {setting_text(best, report.axes)}"
        if best[f"{measure.key}_verdict"] == BETTER:
            told += f" ({change_text(best, measure)} {measure.difference_unit} against the baseline)"
        tiles.append({"value": measure.value(best[measure.key]), "text": told})
    return tiles
