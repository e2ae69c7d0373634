"""What a joint sweep found: the combinations, what each choice alone is worth, and the words that sum them up.

Knows nothing of files or pages.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.joint.measures import MEASURES
from experiments.joint.table import Axes
from experiments.joint.words import MOST_SHOWN, best_first, choices, combinations, policy_text, setting_text
from experiments.show import show_table
from experiments.sweep_report import Row, SweepReport, rows_of

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class JointReport(SweepReport):
    """A row per combination and setting."""

    axes: Axes
    effects: DataFrame

    def tables(self) -> dict[str, list[Row]]:
        """Also what each choice alone is worth."""
        return {"report": self.rows()} | ({"choices": rows_of(self.effects)} if len(self.effects) else {})

    def summary(self) -> Row:
        """What one tracked run may say of all: the best combination of every setting, by every measure."""
        best: Row = {}
        for measure in MEASURES:
            for _, part in self.frame.groupby(self.axes.settings, dropna=False):
                row = rows_of(best_first(part, measure))[0]
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
