"""Lines over an axis as SVG that a few lines of JavaScript make answer to the pointer.

Knows nothing of what the lines mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 16, 52
TICKS = 5


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the x axis (one of the chart's), a value, and what to say about it."""

    x: str
    y: float
    tip: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    color: str
    points: Sequence[Point]
    dashes: str = ""
    """SVG dash pattern; "" for a whole line."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over equally spaced places; `y` is a share."""

    title: str
    x_label: str
    y_label: str
    places: Sequence[str]
    lines: Sequence[Line]

    @property
    def values(self) -> list[float]:
        """All of them."""
        return [point.y for line in self.lines for point in line.points]

    def drawing(self, least: float, most: float) -> dict[str, object]:
        """Coordinates for the template, with an axis that holds `least` and `most`, all computed."""
        step = _step(least, most)
        low, high = floor(least / step) * step, (floor(most / step) + 1) * step
        room = (WIDTH - LEFT - RIGHT) / max(len(self.places), 1)
        x = {place: round(LEFT + room * (i + 0.5), 1) for i, place in enumerate(self.places)}

        def y(value: float) -> float:
            return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

        ticks = [low + i * step for i in range(round((high - low) / step) + 1)]
        digits = max(0, -floor(log10(step * 100)))
        lines = []
        for line in self.lines:
            shown = [(x[point.x], y(point.y), point.tip) for point in line.points]
            path = " ".join(f"{'M' if i == 0 else 'L'}{px} {py}" for i, (px, py, _) in enumerate(shown))
            lines.append({"name": line.name, "color": line.color, "dashes": line.dashes, "path": path, "points": shown})
        every = max(1, -(-len(self.places) // 8))
        return {
            "title": self.title,
            "x_label": self.x_label,
            "y_label": self.y_label,
            "width": WIDTH,
            "height": HEIGHT,
            "left": LEFT,
            "right": WIDTH - RIGHT,
            "bottom": HEIGHT - BOTTOM,
            "xs": [(x[place], place) for place in self.places[::every]],
            "ys": [(y(tick), f"{tick:.{digits}%}") for tick in ticks],
            "lines": lines,
        }


def _step(low: float, high: float) -> float:
    """A round distance of ticks (1, 2 or 5 times a power of ten)."""
    rough = max((high - low) / TICKS, 1e-4)
    power: float = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
