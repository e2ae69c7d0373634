"""What a joint sweep is judged by: a number per run, its unit, and whether more of it is better.

Knows nothing of runs or policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of `experiments.simulate`."""

    key: str
    title: str
    unit: str
    """"%": shares, differences in percentage points; else written behind the number."""
    more_is_better: bool = True

    def value(self, number: float) -> str:
        """A mean as people write it."""
        return f"{number:.1%}" if self.unit == "%" else f"{self.short(number)} {self.unit}"

    def short(self, number: float) -> str:
        """The same without its unit."""
        return f"{100 * number:.1f}" if self.unit == "%" else f"{number:#.3g}".removesuffix(".")

    def difference(self, number: float, half_width: float | None = None) -> str:
        """A difference of two, with its sign and without its unit; that of shares in percentage points.

        With half the width of its interval: "+1.96 ± 0.53", both to the second digit of the width.
        """
        scale = 100 if self.unit == "%" else 1
        if half_width is None:
            text = f"{scale * number:+.2f}" if self.unit == "%" else f"{number:+#.3g}".removesuffix(".")
        else:
            places = max(0, 1 - floor(log10(scale * half_width))) if half_width > 0 else 2
            text = f"{scale * number:+.{places}f} ± {scale * half_width:.{places}f}"
        return text.replace("-", "−")

    @property
    def difference_unit(self) -> str:
        """Of `difference`."""
        return "points" if self.unit == "%" else self.unit

    @property
    def units(self) -> str:
        """Of a number and a difference, for the head of a column that has both."""
        return self.unit if self.unit == self.difference_unit else f"{self.unit}; {self.difference_unit}"

    def gain(self, difference: float) -> float:
        """A difference, counted so that more is better."""
        return difference if self.more_is_better else -difference


MEASURES = (
    Measure("goodput", "goodput", "req/s"),
    Measure("ttft_p95", "time to first token, p95", "s", more_is_better=False),
    Measure("token_hit_rate", "token hit rate", "%"),
)
