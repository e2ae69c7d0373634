"""How the cost of the cache grows: per request with the pool, per lookup with the prompt.

Knows nothing of how it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.plots.style import BLUE, ORANGE, SKY, panels, paper, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = Mapping[str, Mapping[int, float]]
LOOKS = {"radix": (BLUE, "o"), "hash_chain": (ORANGE, "s"), "radix, a run per block": (SKY, "^")}
LIFT = {"radix, a run per block": 9.0, "hash_chain": -4.0}
"""Points by which a name is moved up where the two lines end in one place."""


def draw_cache_cost(by_pool: Curves, by_prompt: Curves) -> Figure:
    """`by_pool`: microseconds per request, per pool size in blocks; `by_prompt`: per lookup, per prompt length."""
    from matplotlib.ticker import FuncFormatter

    with paper():
        figure, (left, right) = panels(2, width=4.2, height=2.9)
        _curves(left, by_pool)
        left.set(title="One request: 128 blocks hit, 16 new", xlabel="blocks in the pool, all taken", ylim=(0, None))
        _curves(right, by_prompt)
        right.set(title="One lookup: every block hits", xlabel="tokens of the prompt", yscale="log")
        right.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
    return figure


def _curves(axes: Axes, curves: Curves) -> None:
    from matplotlib.ticker import FuncFormatter

    for name, curve in curves.items():
        color, marker = LOOKS[name]
        axes.plot(list(curve), list(curve.values()), color=color, marker=marker)
        lift = LIFT.get(name, 0) if len(curves) > 2 else 0
        end = list(curve.items())[-1]
        axes.annotate(name, end, (7, lift), textcoords="offset points", color=color, va="center", annotation_clip=False)
    axes.set(xscale="log", ylabel="µs")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: thousands(x)))
