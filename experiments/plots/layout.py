"""What layouts of one chat cost: hit rate, the tokens of a prompt by what became of them, time to first token.

Takes the frame of `experiments.layout.report`; knows nothing of records or folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLUE, GREEN, GREY, ORANGE, RED, VIOLET, label_ends, panels, paper
from experiments.wording import signed_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

Row = dict[str, Any]
HIT, WASTE, NEW = "#9AD0BE", RED, "#C9C9C9"
MOST_LINES = 8
LINE_COLORS = (GREY, RED, ORANGE, VIOLET, BLUE, GREEN, "#8C510A", "#000000")


def draw_layouts(frame: DataFrame, turns: Sequence[DataFrame]) -> dict[str, Figure]:
    """Figures by file name. `frame`: a row per run with its `label`, in the order of the table; `turns`: the tables
    by turn, with the same labels; left out where there are more than eight runs or a single turn."""
    figures = {}
    with paper():
        figures["layouts"] = _layouts(frame)
        if len(turns) <= MOST_LINES and len(turns[0]) > 1:
            order = {text: place for place, text in enumerate(frame.label)}
            figures["hit_rate_by_turn"] = _by_turn(sorted(turns, key=lambda part: order[part.label.iloc[0]]))
    return figures


def draw_turns(turns: Sequence[Row], series: Sequence[Row], metrics: Row) -> dict[str, Figure]:
    """One figure, "turns", of one run: what became of a prompt's tokens, turn by turn."""
    if not turns:
        return {}
    with paper():
        figure, (axes,) = panels(1, height=0.9 + 0.42 * len(turns))
        names = [f"turn {row['turn']}" for row in turns]
        hit, again, totals = (
            [row[f"{name}_per_request"] for row in turns]
            for name in ("hit_tokens", "resent_tokens_computed", "prompt_tokens")
        )
        _stack(axes, hit, again, totals)
        for place, row in enumerate(turns):
            _beside(axes, totals[place], place, f"{row['token_hit_rate']:.0%} hit, {row['ttft_ms_p50']:,.0f} ms", GREY)
        axes.set_yticks(range(len(names)), names)
        axes.set(title="Prompt tokens per request", xlabel="tokens", xlim=(0, max(totals) * 1.35))
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return {"turns": figure}


def _layouts(frame: DataFrame) -> Figure:
    from matplotlib.ticker import PercentFormatter

    real = "real_ttft_ms_p50" in frame
    figure, axes = panels(4 if real else 3, width=3.5, height=1.0 + 0.42 * len(frame), sharey=True)
    rate, tokens, wait = axes[:3]
    places = range(len(frame))
    rate.barh(places, frame.token_hit_rate, color=BLUE, height=0.62)
    for place, value in zip(places, frame.token_hit_rate, strict=True):
        _beside(rate, value, place, f"{value:.1%}", BLUE)
    rate.set(title="Token hit rate", xlabel="of prompt tokens", xlim=(0, 1.28), xticks=[0, 0.25, 0.5, 0.75, 1])
    rate.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    computed = frame.prompt_tokens_per_request - frame.computed_tokens_per_request
    _stack(
        tokens, list(computed), list(frame.resent_tokens_computed_per_request), list(frame.prompt_tokens_per_request)
    )
    tokens.set(title="Prompt tokens per request", xlabel="tokens")
    _times(wait, list(1000 * frame.ttft_p50), list(1000 * frame.ttft_p95))
    wait.set(title=f"Time to first token,\nsimulated ({frame.model.iloc[0]} on {frame.gpu.iloc[0]})")
    if real:
        _times(axes[3], list(frame.real_ttft_ms_p50), list(frame.real_ttft_ms_p95))
        axes[3].set(title="Time to first token,\nreal (SmolLM2, this machine)")
    rate.set_yticks(places, frame.label)
    rate.set_ylim(len(frame) - 0.4, -0.6)
    for panel in axes:
        panel.grid(axis="y", visible=False)
        panel.tick_params(axis="y", length=0)
    handles, texts = tokens.get_legend_handles_labels()
    marks, words = wait.get_legend_handles_labels()
    figure.legend(
        [*handles, *reversed(marks)], [*texts, *reversed(words)], loc="outside lower center", ncols=5, frameon=False
    )
    return figure


def _stack(axes: Axes, hit: Sequence[float], again: Sequence[float], totals: Sequence[float]) -> None:
    """Bars of hit, sent before but computed again, and the rest. The tail of a hit block may be new: never below 0."""
    places = range(len(totals))
    new = [max(0.0, total - a - b) for total, a, b in zip(totals, hit, again, strict=True)]
    axes.barh(places, hit, color=HIT, height=0.62, label="hit")
    axes.barh(places, again, left=hit, color=WASTE, height=0.62, label="sent before, computed again")
    left = [a + b for a, b in zip(hit, again, strict=True)]
    axes.barh(places, new, left=left, color=NEW, height=0.62, label="new")


def _times(axes: Axes, p50: Sequence[float], p95: Sequence[float]) -> None:
    axes.barh(range(len(p50)), p50, color=ORANGE, height=0.62, label="median")
    axes.plot(p95, range(len(p95)), "|", color="black", markersize=11, markeredgewidth=1.6, label="95th percentile")
    for place, (median, high) in enumerate(zip(p50, p95, strict=True)):
        words = f"{median:,.0f} / {high:,.0f} ms"
        if place:
            changes = (signed_percent(value / first - 1) for value, first in ((median, p50[0]), (high, p95[0])))
            words += f" ({' / '.join(changes)})"
        _beside(axes, high, place, words, "#7A5400")
    axes.set_xlim(0, max(p95) * 2.1)
    axes.set_xlabel("ms: median / 95th percentile")


def _beside(axes: Axes, x: float, y: int, text: str, color: str) -> None:
    at = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8.5}
    axes.annotate(text, (x, y), color=color, **at)  # type: ignore[arg-type]


def _by_turn(turns: Sequence[DataFrame]) -> Figure:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    figure, (axes,) = panels(1, height=3.4)
    ends = []
    for part, color in zip(turns, LINE_COLORS, strict=False):
        axes.plot(part.turn, part.token_hit_rate, color=color, marker="o")
        ends.append((str(part.label.iloc[0]), part.turn.iloc[-1], part.token_hit_rate.iloc[-1], color))
    axes.set(title="Hit rate by turn of a session", xlabel="turn", ylabel="token hit rate", ylim=(0, 1.03))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    longest = max((text for text, *_ in ends), key=len)
    axes.annotate(f"{longest}  ", (1.03, 0.5), xycoords="axes fraction", fontsize=9, alpha=0)  # room for the labels
    figure.draw_without_rendering()
    label_ends(axes, ends)
    return figure
