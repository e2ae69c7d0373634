"""What combinations of parameters gain where they were tuned, against what they gain where they were not.

Takes the rows of `experiments.tune`; knows nothing of how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLUE, GREY, RED, SKY, panels, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]


def draw_tuning(rows: Sequence[Row], policy: str, optimum: float) -> dict[str, Figure]:
    """One figure, "tuning": a point per combination, the default and the chosen one marked; LRU lies at 0.

    `optimum`: what Belady gains on the held-out part.
    """
    with paper():
        figure, (axes,) = panels(1, width=5.2, height=3.8)
        points = {
            "tried": (SKY, "o", [row for row in rows if not (row["is_chosen"] or row["is_default"])]),
            "default": (GREY, "s", [row for row in rows if row["is_default"]]),
            "chosen": (RED, "D", [row for row in rows if row["is_chosen"]]),
        }
        for name, (color, marker, some) in points.items():
            x, y = [row["tuned_gain"] for row in some], [row["held_out_gain"] for row in some]
            size, order = (22, 2) if name == "tried" else (48, 3)
            if some:
                axes.scatter(x, y, size, color=color, marker=marker, label=name, zorder=order, linewidths=0)
        axes.axhline(0, color=BLUE, linewidth=1.2)
        axes.annotate(" LRU", (1, 0), xycoords=("axes fraction", "data"), color=BLUE, va="center", fontsize=9)
        best = max(row["held_out_gain"] for row in rows)
        title = f"{policy}: tuned on the first part, judged on the rest".lstrip(": ")
        axes.set(title=title, xlabel="points over LRU, first part", ylabel="points over LRU, held out")
        axes.margins(0.08)
        axes.annotate(
            f"best tried {best:+.2f}, optimum {optimum:+.2f}", (0.99, 0.02), xycoords="axes fraction", fontsize=8.5,
            color=GREY, ha="right",
        )  # fmt: skip
        axes.legend(frameon=False, fontsize=8.5, loc="best")
        return {"tuning": figure}
