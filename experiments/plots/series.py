"""How one run went: hit rate, water level of the pool, evictions, ages.

Knows nothing of policies: one run is drawn, none compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, label_ends, panels, paper, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]


def draw_series(series: Sequence[Row], metrics: Row) -> dict[str, Figure]:
    """One figure, "series", over the requests: token hit rate, blocks, evictions, ages (in requests)."""
    if not series:
        return {}
    with paper():
        return {"series": _draw(series, metrics)}


def _draw(series: Sequence[Row], metrics: Row) -> Figure:
    from matplotlib.ticker import FuncFormatter, PercentFormatter

    figure, axes = panels(2, 2, width=4.3, height=2.3, sharex=True)
    x = [row["request"] for row in series]
    rate, blocks, evictions, age = axes

    _line(rate, x, series, "window_hit_rate", SKY, 1.0)
    _line(rate, x, series, "hit_rate", BLUE)
    ceiling = metrics.get("ceiling_token_hit_rate")
    ends = [_end(series, "hit_rate", "so far", BLUE), _end(series, "window_hit_rate", "lately", SKY)]
    if ceiling is not None:
        rate.axhline(ceiling, color="black", linestyle="--", linewidth=1)
        ends.append(("infinite cache\n(whole run)", x[-1], ceiling, "black"))
    rate.set(title="Token hit rate", ylabel="of prompt tokens", ylim=(0, 1.03))
    rate.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))

    keys = (("used_blocks", "in use", ORANGE), ("cached_blocks", "cached", GREEN), ("free_blocks", "free", GREY))
    for key, _, color in keys:
        _line(blocks, x, series, key, color)
    blocks.set(title="Blocks of the pool", ylabel="blocks")

    _line(evictions, x, series, "evictions", RED)
    evictions.set(title="Evictions so far", ylabel="blocks", xlabel="request")

    _line(age, x, series, "age_at_hit", GREEN)
    _line(age, x, series, "age_at_eviction", PINK)
    age.set(title="Age of a block when ...", ylabel="requests since last access", xlabel="request")

    for panel in (blocks, evictions, age):
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
    for panel in axes:
        panel.set_xlim(left=0, right=max(x[-1], 1))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
        panel.margins(x=0)
    _label(rate, ends)
    _label(blocks, [_end(series, key, text, color) for key, text, color in keys])
    _label(age, [_end(series, "age_at_hit", "hit", GREEN), _end(series, "age_at_eviction", "evicted", PINK)])
    return figure


def _line(axes: Axes, x: Sequence[float], series: Sequence[Row], key: str, color: str, width: float = 1.7) -> None:
    points = [(at, row[key]) for at, row in zip(x, series, strict=True) if row.get(key) is not None]
    axes.plot([at for at, _ in points], [value for _, value in points], color=color, linewidth=width)


def _end(series: Sequence[Row], key: str, text: str, color: str) -> tuple[str, float, float, str] | None:
    for row in reversed(series):
        if row.get(key) is not None:
            return text, row["request"], row[key], color
    return None


def _label(axes: Axes, ends: Sequence[tuple[str, float, float, str] | None]) -> None:
    label_ends(axes, [end for end in ends if end is not None])
