"""One look for all figures: the same colour and marker for a policy everywhere, labels beside the lines.

The colours are Okabe and Ito's, which colour-blind readers can tell apart. Imports matplotlib only when called.

Knows nothing of what the lines mean.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
RED, SKY, BROWN, VIOLET = "#D55E00", "#56B4E9", "#8C510A", "#5E3C99"
GREY, BLACK = "#6E6E6E", "#000000"
MOST_PANELS = 3
RC: Any = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.7,
    "lines.markersize": 5,
    "svg.hashsalt": "pagelab",
    "figure.facecolor": "white",
}


@dataclass(frozen=True, slots=True)
class Look:
    """How one policy is drawn."""

    color: str
    marker: str
    dashes: str = "-"


FAMILIAR = {
    "lru": Look(BLUE, "o"),
    "fifo": Look(ORANGE, "s"),
    "lfu": Look(GREEN, "^"),
    "random": Look(PINK, "D"),
    "belady": Look(GREY, "", "--"),
    "no sharing": Look(BLACK, "x", ":"),
}
NEW_COLORS, NEW_MARKERS = (RED, SKY, BROWN, VIOLET), "vP<>Xph*"


def looks(policies: Iterable[str]) -> dict[str, Look]:
    """A look for each policy: fixed for familiar ones, by name for new ones; nothing to edit when one is added."""
    names = sorted(set(policies))
    fresh = [name for name in names if name not in FAMILIAR]
    colors = [
        *NEW_COLORS,
        *(look.color for name, look in FAMILIAR.items() if name not in names and look.color not in (GREY, BLACK)),
    ]
    others = [Look(color, marker) for marker in NEW_MARKERS for color in colors]
    return {name: FAMILIAR.get(name) or others[fresh.index(name) % len(others)] for name in names}


def paper() -> AbstractContextManager[None]:
    """Everything drawn within looks alike."""
    import matplotlib

    return matplotlib.rc_context(RC)


def panels(
    num_columns: int, num_rows: int = 1, width: float | None = None, height: float = 3.1, **kwargs: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with a row (or rows) of axes; sizes in inches per panel (by default a lone one is twice as wide)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = width or (6.0 if num_columns == 1 else 3.0)
    figure = Figure(figsize=(width * num_columns + 1.2, height * num_rows + 0.3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(num_rows, num_columns, squeeze=False, **kwargs)
    return figure, list(axes.flat)


def label_ends(axes: Axes, labels: Sequence[tuple[str, float, float, str]], size: float = 9.0) -> None:
    """Write (text, x, y, colour) beside the right end of its line, pushed apart so that none covers another."""
    if not labels:
        return
    figure = axes.figure
    low, high = axes.get_ylim()
    extent = axes.get_window_extent()
    line_height = (high - low) * (size * 1.2 * figure.dpi / 72) / extent.height
    ordered = sorted(labels, key=lambda label: label[2])
    heights = [line_height * (text.count("\n") + 1) for text, *_ in ordered]
    gaps = [(below + above) / 2 for below, above in pairwise(heights)]
    wanted = [min(y, high - sum(gaps[index:])) for index, (_, _, y, _) in enumerate(ordered)]  # none above the axes
    for (text, x, y, color), place in zip(ordered, spread(wanted, gaps), strict=True):
        line = {"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)}
        axes.annotate(
            text,
            xy=(x, y),
            xytext=(1.03, (place - low) / (high - low)),
            textcoords="axes fraction",
            color=color,
            fontsize=size,
            va="center",
            annotation_clip=False,
            arrowprops=line,
        )


def spread(places: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Ascending places moved as little as needed for neighbours to lie at least `gaps` apart, one for each pair.

    Least squares by pooling neighbours that violate the order, once the gaps are taken out (Ayer et al., 1955).
    """
    groups: list[tuple[float, int]] = []  # (centre, members)
    offsets = list(accumulate(gaps, initial=0.0))
    for place, offset in zip(places, offsets, strict=True):
        centre, members = place - offset, 1
        while groups and groups[-1][0] > centre:
            below, count = groups.pop()
            centre, members = (below * count + centre * members) / (count + members), count + members
        groups.append((centre, members))
    centres = [centre for centre, members in groups for _ in range(members)]
    return [centre + offset for centre, offset in zip(centres, offsets, strict=True)]


def render(figure: Figure) -> dict[str, bytes]:
    """The figure as "png" (200 dpi) and "svg"; the same figure gives the same bytes."""
    files = {}
    with paper():
        for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=200, metadata=metadata)
            files[suffix] = buffer.getvalue()
    return files


def thousands(count: float) -> str:
    """1,234,567 as "1.23 M"; a small number that is not whole keeps its fraction."""
    count = float(f"{count:.3g}")  # before the unit is chosen: 999,999 is 1 M, not 1e+03 k
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count:g}"


def some(values: Sequence[T]) -> list[T]:
    """At most three of them, as panels of one figure: the ends and the middle."""
    if len(values) <= MOST_PANELS:
        return list(values)
    last = len(values) - 1
    return [values[round(last * index / (MOST_PANELS - 1))] for index in range(MOST_PANELS)]
