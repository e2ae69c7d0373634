"""What a joint sweep is judged by: a number per run, its unit, and whether more of it is better.

Knows nothing of runs or policies.
"""

from __future__ import annotations

from dataclasses import dataclass


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
        return f"{number:.1%}" if self.unit == "%" else f"{number:.3g} {self.unit}"

    def short(self, number: float) -> str:
        """The same without its unit."""
        return f"{100 * number:.1f}" if self.unit == "%" else f"{number:.3g}"

    def difference(self, number: float) -> str:
        """A difference of two, with its sign and without its unit; that of shares in percentage points."""
        text = f"{100 * number:+.2f}" if self.unit == "%" else f"{number:+.3g}"
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
