"""Hit rate and waste against block size, and the estimate where kernel times are known.

Takes the rows of `experiments.block_size`; knows nothing of how they were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, panels, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]


def draw_block_sizes(rows: Sequence[Row], kernel_rows: Sequence[Row], granularity: int) -> dict[str, Figure]:
    """One figure, "block_size": hit rate; fragmentation and lost tokens; with kernel times, what a request takes."""
    with paper():
        figure, axes = panels(3 if kernel_rows else 2, width=4.0, height=3.0)
        _hit_rate(axes[0], rows, granularity)
        _waste(axes[1], rows)
        if kernel_rows:
            _kernels(axes[2], kernel_rows)
        for panel in axes:
            panel.set_xscale("log", base=2)
            _ticks(panel, [row["block_size"] for row in rows])
            panel.set_xlabel("block size (tokens)")
        return {"block_size": figure}


def _hit_rate(axes: Axes, rows: Sequence[Row], granularity: int) -> None:
    from matplotlib.ticker import PercentFormatter

    x = [row["block_size"] for row in rows]
    axes.plot(x, [row["token_hit_rate"] for row in rows], color=BLACK, linewidth=1.2, label="infinite pool")
    finite = [row for row in rows if "lru_token_hit_rate" in row]
    if finite:
        y = [row["lru_token_hit_rate"] for row in finite]
        axes.plot([row["block_size"] for row in finite], y, "o-", color=BLUE, label="LRU, same memory at every size")
    if granularity > x[0]:
        axes.axvspan(x[0], min(granularity, x[-1]), color=GREY, alpha=0.12, linewidth=0)
        axes.annotate(
            "the trace tells no\nprompts apart here", (x[0], 0.02), xycoords=("data", "axes fraction"), fontsize=8
        )
    axes.set(title="Token hit rate", ylabel="of prompt tokens")
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(frameon=False, fontsize=8.5, loc="lower left" if granularity == 1 else "upper right")


def _waste(axes: Axes, rows: Sequence[Row]) -> None:
    from matplotlib.ticker import PercentFormatter

    x = [row["block_size"] for row in rows]
    axes.plot(x, [row["fragmentation"] for row in rows], color=ORANGE, label="unused in last blocks, of memory")
    best = max(row["token_hit_rate"] for row in rows)
    axes.plot(x, [best - row["token_hit_rate"] for row in rows], color=PINK, label="hit tokens lost, of prompt tokens")
    axes.set(title="What large blocks cost")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    axes.legend(frameon=False, fontsize=8.5, loc="upper left")


def _kernels(axes: Axes, rows: Sequence[Row]) -> None:
    x = [row["block_size"] for row in rows]
    if "request_us" not in rows[0]:
        axes.plot(x, [row["kernel_us"] for row in rows], "s-", color=GREEN)
        axes.set(title="Kernel", ylabel="µs per call", ylim=(0, None))
        return
    prefill, kernels = ([row[key] / 1000 for row in rows] for key in ("prefill_us", "kernels_us"))
    total = [a + b for a, b in zip(prefill, kernels, strict=True)]
    axes.plot(x, prefill, "^-", color=PINK, label="computing what missed")
    axes.plot(x, kernels, "s-", color=GREEN, label="attention kernels")
    axes.plot(x, total, "o-", color=BLACK, label="both")
    place = total.index(min(total))
    axes.annotate(
        f"least at {x[place]}",
        (x[place], total[place]),
        xytext=(0, 10),
        textcoords="offset points",
        ha="center",
        color=RED,
    )
    axes.plot([x[place]], [total[place]], "o", color=RED, markersize=8)
    axes.set(title="Estimate per request", ylabel="ms", ylim=(0, 1.25 * max(total)))
    axes.legend(frameon=False, fontsize=8.5)


def _ticks(axes: Axes, sizes: Sequence[int]) -> None:
    powers = [2**k for k in range(0, 21) if sizes[0] <= 2**k <= sizes[-1]]
    shown = powers if len(powers) <= 8 else powers[::2]
    axes.set_xticks(shown, [str(size) for size in shown])
    axes.set_xticks([], minor=True)
