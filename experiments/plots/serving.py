"""How a timed run went: water level of the pool, queues, waiting by arrival, latencies of all requests.

Knows nothing of policies: one run is drawn, none compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLUE, GREY, ORANGE, PINK, RED, SKY, panels, paper, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
NUM_BINS = 60
LEVELS = (("used_blocks", "in use", ORANGE), ("cached_blocks", "cached", "#9AD0BE"), ("free_blocks", "free", "#E9E9E9"))
QUEUES = (("running", "running", BLUE), ("waiting", "waiting", RED), ("swapped", "swapped out", PINK))
SHOWN = (("tpot", "per output\ntoken", ORANGE), ("ttft", "first token", BLUE), ("e2e", "last token", GREY))


def draw_serving(rows: Sequence[Row], series: Sequence[Row], metrics: Row) -> dict[str, Figure]:
    """One figure, "serving". `rows`: one per request; `series`: samples over simulated time."""
    served = [row for row in rows if row["ttft"] is not None]
    if not series or not served:
        return {}
    with paper():
        return {"serving": _draw(served, series, metrics)}


def _draw(served: Sequence[Row], series: Sequence[Row], metrics: Row) -> Figure:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    figure, axes = panels(2, 2, width=4.3, height=2.5)
    levels, queues, waits, shares = axes
    draw_levels(levels, series)
    _queues(queues, series, metrics)
    for panel in (levels, queues):
        panel.set_ylim(bottom=0)
        panel.set_xlim(0, max(series[-1]["time"], 1e-9))
        panel.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
        panel.set_xlabel("seconds")
    _waits(waits, served, metrics)
    _shares(shares, served, metrics)
    for panel in axes:
        panel.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0)
    return figure


def draw_levels(axes: Axes, series: Sequence[Row]) -> None:
    """Blocks in use, cached and free over time, on top of each other; a pool without bounds has no free ones."""
    shown = [level for level in LEVELS if all(row[level[0]] is not None for row in series)]
    axes.stackplot(
        [row["time"] for row in series],
        [[row[key] for row in series] for key, _, _ in shown],
        labels=[text for _, text, _ in shown],
        colors=[color for _, _, color in shown],
        linewidth=0,
    )
    axes.set(title="Blocks of the pool", ylabel="blocks")


def _queues(axes: Axes, series: Sequence[Row], metrics: Row) -> None:
    for key, text, color in QUEUES:
        if key != "swapped" or any(row[key] for row in series):
            axes.plot([row["time"] for row in series], [row[key] for row in series], color=color, lw=1.2, label=text)
    axes.set(title="Requests", ylabel="requests")


def _waits(axes: Axes, served: Sequence[Row], metrics: Row) -> None:
    import numpy as np

    arrivals = np.array([row["arrival"] for row in served])
    ttft = np.array([row["ttft"] for row in served])
    width = max(float(arrivals.max()), 1e-9) / NUM_BINS
    bins = np.minimum((arrivals / width).astype(int), NUM_BINS - 1)
    for percent, color in ((95, SKY), (50, BLUE)):
        points = [((b + 0.5) * width, float(np.percentile(ttft[bins == b], percent))) for b in np.unique(bins)]
        axes.plot(*zip(*points, strict=True), color=color, linewidth=1.3, label=f"p{percent}")
    if "slo_ttft" in metrics:
        axes.axhline(metrics["slo_ttft"], color="black", linestyle="--", linewidth=1, label="objective")
    axes.set(title="Time to first token, by arrival", ylabel="seconds", xlabel="arrival, seconds")
    axes.set_xlim(0, width * NUM_BINS)
    axes.set_yscale("log")
    _plain_numbers(axes, "y")


def _shares(axes: Axes, served: Sequence[Row], metrics: Row) -> None:
    import numpy as np
    from matplotlib.ticker import PercentFormatter

    for key, text, color in SHOWN:
        values = np.sort([row[key] for row in served if row[key] is not None])
        if values.size:
            axes.plot(values, np.arange(1, values.size + 1) / values.size, color=color, label=text)
    for key, color in (("slo_ttft", BLUE), ("slo_tpot", ORANGE)):
        if key in metrics:
            axes.axvline(metrics[key], color=color, linestyle="--", linewidth=1)
    title = "Latencies (dashed: objective)" if "slo_ttft" in metrics else "Latencies"
    axes.set(title=title, xlabel="seconds", ylabel="of requests at most so long", ylim=(0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_xscale("log")
    _plain_numbers(axes, "x")


def _plain_numbers(axes: Axes, which: str) -> None:
    """0.1, 1, 10 instead of powers, and no numbers between them."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
