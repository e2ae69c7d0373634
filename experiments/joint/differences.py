"""Is a policy better than the baseline, or was it the luck of the seed? Paired differences with their intervals.

Runs from one seed met the same requests, so a policy is compared with the baseline within each seed, and the interval
is that of the mean of these differences (Student's t: with a handful of seeds a bootstrap would be too narrow). Where
it covers zero the two are *not distinguishable*. Where nothing is random, every seed gives the same difference and
there is no doubt to state; with one seed there is no interval.

Knows nothing of what the numbers measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.joint.measures import MEASURES, Measure
from experiments.joint.table import Axes

if TYPE_CHECKING:
    from pandas import DataFrame, Series

CONFIDENCE = 0.95
NAN = float("nan")
BETTER, WORSE, EQUAL, UNCLEAR, ONE_SEED = "better", "worse", "equal", "not distinguishable", "one seed"


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over seeds of (policy - baseline), and the interval that holds the true mean at `CONFIDENCE`."""

    mean: float
    low: float
    high: float
    seeds: int

    def verdict(self, measure: Measure) -> str:
        """What may be said of it."""
        if self.low != self.low:
            return ONE_SEED
        if self.low == self.high == 0:
            return EQUAL
        if self.low <= 0 <= self.high:
            return UNCLEAR
        return BETTER if measure.gain(self.mean) > 0 else WORSE


def paired(differences: Sequence[float]) -> Difference:
    """The mean of differences, one per seed, with its interval; equal differences have one of no width."""
    import numpy as np
    from scipy.stats import ttest_1samp

    found = np.asarray(differences, dtype=float)
    mean = float(found.mean()) if found.size else NAN
    if found.size < 2:
        return Difference(mean, NAN, NAN, found.size)
    if np.ptp(found) == 0:
        return Difference(float(found[0]), float(found[0]), float(found[0]), found.size)
    low, high = ttest_1samp(found, 0.0).confidence_interval(CONFIDENCE)
    return Difference(mean, float(low), float(high), found.size)


def compare(frame: DataFrame, axes: Axes) -> DataFrame:
    """One row per point: means over seeds, and per measure its difference from the baseline of the same setting.

    Columns: settings, policies, is_baseline, seeds, then for every measure `x`: x, x_difference, x_low, x_high,
    x_verdict. A seed that the point or the baseline lacks counts in neither.
    """
    from pandas import DataFrame

    rows = []
    for point, part in frame.groupby(axes.points, dropna=False, sort=True):
        names: dict[str, Any] = dict(zip(axes.points, point if isinstance(point, tuple) else (point,), strict=True))
        beside = _where(frame, {name: names[name] for name in axes.settings} | axes.baseline).set_index("seed")
        own = part.set_index("seed")
        is_baseline = all(names[name] == choice for name, choice in axes.baseline.items())
        row: dict[str, Any] = names | {"is_baseline": is_baseline, "seeds": len(own)}
        for measure in MEASURES:
            row |= _columns(measure, float(own[measure.key].mean()), _pairs(own[measure.key], beside[measure.key]))
        rows.append(row)
    return DataFrame(rows)


def effects(frame: DataFrame, axes: Axes) -> DataFrame:
    """What one choice alone is worth: its difference from the baseline's choice, all other axes averaged.

    One row per (block size or whatever settings, axis, choice), columns as in `compare`. Only points that both choices
    have under the same seed count, so nothing else differs between the two means.
    """
    from pandas import DataFrame

    rows = []
    for axis, usual in axes.baseline.items():
        others = [name for name in axes.policies if name != axis]
        for choice in sorted(frame[axis].unique()):
            if choice == usual:
                continue
            both = frame[frame[axis] == choice].merge(
                frame[frame[axis] == usual], on=[*axes.settings, *others, "seed"], suffixes=("", "_usual")
            )
            for setting, part in both.groupby(axes.settings, dropna=False, sort=True):
                row: dict[str, Any] = dict(zip(axes.settings, setting, strict=True))
                row |= {"axis": axis, "choice": choice, "instead_of": usual, "seeds": part.seed.nunique()}
                for measure in MEASURES:
                    change = (part[measure.key] - part[f"{measure.key}_usual"]).groupby(part.seed).mean()
                    row |= _columns(measure, float(part[measure.key].mean()), paired(change.tolist()))
                rows.append(row)
    return DataFrame(rows)


def _where(frame: DataFrame, wanted: dict[str, Any]) -> DataFrame:
    for name, value in wanted.items():
        frame = frame[frame[name].isna() if value is None or value != value else frame[name] == value]
    return frame


def _pairs(own: Series[float], beside: Series[float]) -> Difference:
    return paired((own - beside).dropna().tolist())


def _columns(measure: Measure, mean: float, found: Difference) -> dict[str, Any]:
    key = measure.key
    return {
        key: mean,
        f"{key}_difference": found.mean,
        f"{key}_low": found.low,
        f"{key}_high": found.high,
        f"{key}_verdict": found.verdict(measure),
    }
