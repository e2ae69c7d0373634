"""How far the same prompt's logits drift apart, step by step, when it is computed another way.

Knows nothing of how they were computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLUE, GREEN, ORANGE, label_ends, panels, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
COLORS = {"warm": BLUE, "chunked": ORANGE, "batched": GREEN}


def draw_numerics(steps: Sequence[Row]) -> dict[str, Figure]:
    """One figure, "numerics": the largest |Δ logit| and KL against the cold run, over the output tokens."""
    if not steps:
        return {}
    with paper():
        figure, axes = panels(2, 2, width=4.3, height=2.4, sharex=True, sharey="row")
        for column, mode in enumerate(("fast", "invariant")):
            _draw(axes[column], steps, mode, "max_logit_difference")
            _draw(axes[2 + column], steps, mode, "max_kl")
            axes[column].set_title(f"{mode.capitalize()} mode")
            axes[2 + column].set_xlabel("output token")
        axes[0].set_ylabel("largest |Δ logit|")
        axes[2].set_ylabel("largest KL (nats)")
        return {"numerics": figure}


def _draw(axes: Axes, steps: Sequence[Row], mode: str, key: str) -> None:
    ends, drifts = [], False
    for treatment, color in COLORS.items():
        rows = [row for row in steps if row["mode"] == mode and row["treatment"] == treatment]
        values = [row[key] for row in rows]
        axes.plot([row["step"] for row in rows], values, color=color, linewidth=1.4)
        ends.append((treatment, rows[-1]["step"], values[-1], color))
        drifts = drifts or any(values)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.margins(x=0)
    if drifts:
        axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        label_ends(axes, ends)
    else:
        axes.text(0.5, 0.5, "0 everywhere, bit for bit", transform=axes.transAxes, ha="center", va="center")
