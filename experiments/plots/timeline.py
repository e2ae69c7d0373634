"""A small run as a chart: one row per request, coloured by what it was doing, over the water level of the pool.

Knows nothing of how the run was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.serving import draw_levels
from experiments.plots.style import BLUE, GREEN, ORANGE, PINK, RED, paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.timeline import Timeline

COLORS = {
    "waiting": "#D9D9D9",
    "prefilling": BLUE,
    "decoding": GREEN,
    "preempted": RED,
    "swapped out": PINK,
    "recomputing": ORANGE,
    "held up": "#8C8C8C",
}


def draw_timeline(timeline: Timeline, requests: Sequence[Any], title: str = "") -> Figure:
    """`requests`: finished ones, for what to write beside their rows: prefix hits and preemptions."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    with paper():
        figure = Figure(figsize=(9.0, 2.6 + 0.2 * len(requests)), layout="constrained")
        FigureCanvasAgg(figure)
        rows, levels = figure.subplots(2, 1, sharex=True, height_ratios=[max(len(requests) / 9, 1.2), 1])
        for interval in timeline.intervals:
            length = interval.end - interval.start
            rows.barh(interval.request, length, left=interval.start, color=COLORS[interval.state], height=0.8)
        for request in requests:
            told = f"{request.hit_tokens or 0} of {len(request.prompt)} hit"
            if request.preemptions:
                told += f" · {request.preemptions}× preempted"
            rows.annotate(
                told,
                (request.finished_at, request.index),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
            )
        end = max(request.finished_at for request in requests)
        rows.set(title=title, ylabel="request", xlim=(0, end * 1.28), ylim=(max(r.index for r in requests) + 0.6, -0.6))
        rows.set_yticks([request.index for request in requests])
        rows.grid(axis="y", visible=False)
        seen = {interval.state for interval in timeline.intervals}
        patches = [Patch(color=color, label=state) for state, color in COLORS.items() if state in seen]
        beside: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        rows.legend(handles=patches, **beside)
        draw_levels(levels, timeline.levels)
        levels.set(title="", xlabel="simulated seconds")
        levels.legend(**beside)
    return figure
