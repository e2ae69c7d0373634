"""Hit rate against pool size: the exact LRU line, points of other policies with their errors, the ceiling.

Takes the rows of `experiments.curves`; knows nothing of how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLACK, label_ends, looks, panels, paper, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]


def draw_curves(rows: Sequence[Row], line: Sequence[Row]) -> dict[str, Figure]:
    """One figure, "curves": token hit rate by pool size; whiskers are the errors of sampled points.

    None where no pool is finite.
    """
    if all(row["pool_tokens"] == inf for row in rows):
        return {}
    with paper():
        figure, (axes,) = panels(1, width=7.0, height=3.8)
        axes.annotate("infinite cache ", (1.03, 0.5), xycoords="axes fraction", fontsize=9, alpha=0)  # room for labels
        plot_curves(axes, rows, line)
        return {"curves": figure}


def plot_curves(axes: Axes, rows: Sequence[Row], line: Sequence[Row]) -> None:
    """The same on given axes."""
    from matplotlib.ticker import PercentFormatter

    rows = [row for row in rows if row["pool_tokens"] < inf]  # an unbounded pool has no place on the axis
    served = [row for row in rows if not row["refused"]]
    if len({row["pool_tokens"] for row in served}) > 1:
        rows = served  # smaller pools have rates over other requests: the table has them
    ends = []
    for policy, look in looks(row["policy"] for row in rows).items():
        points = [row for row in rows if row["policy"] == policy]
        x, y = [row["pool_tokens"] for row in points], [row["token_hit_rate"] for row in points]
        if policy == "lru":
            last = max(x)
            shown = [row for row in line if row["pool_tokens"] <= last and row["pool_tokens"] >= min(x)]
            exact = [row["pool_tokens"] for row in shown], [row["token_hit_rate"] for row in shown]
            axes.plot(*exact, color=look.color, linewidth=2)
            axes.plot(x, y, look.marker, color=look.color, markersize=4)
        else:
            errors = [row["error"] for row in points]
            axes.errorbar(
                x, y, errors, color=look.color, marker=look.marker, linestyle=look.dashes, linewidth=1.2, capsize=2
            )
        ends.append((policy, x[-1], y[-1], look.color))
    last_sizes = sorted({(row["pool_tokens"], row["ceiling_token_hit_rate"]) for row in rows})
    axes.plot(*zip(*last_sizes, strict=True), color=BLACK, linestyle=(0, (5, 2)), linewidth=1.2)
    ends.append(("infinite cache", *last_sizes[-1], BLACK))
    axes.set_xscale("log")
    unit = "tokens, and gigabytes of K and V" if any("pool_gigabytes" in row for row in rows) else "tokens"
    axes.set(xlabel=f"pool ({unit})", ylabel="token hit rate (of prompt tokens)")
    axes.margins(x=0.02, y=0.08)
    axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    sizes = [size for size, _ in last_sizes]
    memory = {row["pool_tokens"]: f"\n{row['pool_gigabytes']:.3g}" for row in rows if "pool_gigabytes" in row}
    axes.set_xticks(sizes, [thousands(size) + memory.get(size, "") for size in sizes])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label_ends(axes, ends)
