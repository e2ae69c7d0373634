"""Why blocks missed, and how old blocks were when they hit, were evicted, were missed.

Takes the frames of `experiments.frames`; knows nothing of ledgers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.plots.style import (
    BLACK,
    BLUE,
    BROWN,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    VIOLET,
    label_ends,
    panels,
    paper,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

COLORS = {
    "hit": GREEN,
    "first_seen": GREY,
    "evicted": PINK,
    "short_share": SKY,
    "key_differs": VIOLET,
    "after_gap": RED,
    "skipped": ORANGE,
    "last_token": BLUE,
    "not_cached": BROWN,
    "reset": "#333333",
}
WORDS = {
    "hit": "hit",
    "first_seen": "first seen",
    "evicted": "evicted",
    "short_share": "shared part shorter\nthan a block",
    "key_differs": "key differs",
    "after_gap": "after a gap",
    "skipped": "skipped by request",
    "last_token": "last token of a\nknown prompt",
    "not_cached": "not cached (yet)",
    "reset": "lost in a reset",
}
EVENTS = (("hit", "hit", GREEN), ("evicted", "evicted", BLACK), ("missed", "missed, since\nevicted before", PINK))


def draw_ledger(reasons: DataFrame, ages: DataFrame) -> dict[str, Figure]:
    """One figure, "ledger": blocks by reason, and blocks by age in requests."""
    with paper():
        figure, (left, right) = panels(2, width=4.3, height=3.0)
        draw_reasons(left, reasons)
        draw_ages(right, ages)
        return {"ledger": figure}


def draw_reasons(axes: Axes, reasons: DataFrame) -> None:
    """A bar per reason that occurs, most frequent first."""
    from matplotlib.ticker import PercentFormatter

    rows = reasons[reasons.part.isna() & (reasons.blocks > 0)].sort_values("blocks")
    axes.barh([WORDS[r] for r in rows.reason], rows.share, color=[COLORS[r] for r in rows.reason], height=0.65)
    for place, row in enumerate(rows.itertuples()):
        axes.annotate(
            f"{row.share:.1%}  ({thousands(float(str(row.blocks)))})",
            (float(str(row.share)), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set(title="Why looked-up blocks hit or missed", xlabel="of looked-up blocks")
    axes.set_xlim(0, max(rows.share.max() * 1.35, 0.01) if len(rows) else 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(visible=False, axis="y")


def draw_ages(axes: Axes, ages: DataFrame, unit: str = "requests") -> None:
    """Blocks younger than an age when they hit, were evicted, were missed: cumulative counts."""
    from matplotlib.ticker import FuncFormatter

    ends = []
    for column, text, color in EVENTS:
        if ages[column].sum():
            axes.step(ages.age, ages[column].cumsum(), where="post", color=color)
            ends.append((text, float(ages.age.iloc[-1]), float(ages[column].sum()), color))
    axes.set_xscale("log")
    axes.set(title="Age of a block when ...", xlabel=f"{unit} since last touched", ylabel="blocks, up to that age")
    axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if 0 < value < 1 else thousands(value)))
    label_ends(axes, ends)
