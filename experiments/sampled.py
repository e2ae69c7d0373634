"""From samples of a workload and a few whole replays to a policy's gain at every pool size, with an honest error.

What a policy gains on LRU differs from sample to sample (*spread*), and between samples and the whole (*bias*): a
policy that learns from many requests learns less from a tenth of them, one whose newcomers share what old favourites
leave has less room. More samples narrow the first and say nothing of the second, and a larger rate hardly lowers it, so
it is measured: at some sizes the policy is replayed whole, and what the samples were off there, interpolated over the
logarithm of the pool size, is taken out everywhere else.

    estimate(N)   = mean gain of the samples(N) + bias(N),         bias(N) = interpolated (whole - mean of the samples)
    bias error    = the most by which a size replayed whole is missed when it is foretold from its neighbours
    spread error  = t · standard error of gain(N) - interpolated gain, over the samples: noise that sizes share is gone

With one or two sizes replayed whole there is none to foretell: the bias error is then all of the bias seen at them;
with none there is no bias error, and the error tells of the spread alone.

Source: the estimate is a control variate (Lavenberg and Welch, Management Science 1981), the whole replays its anchors.

Knows nothing of workloads or caches: numbers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A policy's gain on LRU at one pool size; all numbers are block hit rates."""

    gain: float
    bias: float
    """What was added to the samples' mean."""
    bias_error: float | None
    """None where no whole replay says anything of the bias."""
    spread_error: float | None
    """None with a single sample."""

    @property
    def error(self) -> float:
        """Half the width of the interval that should hold the gain of a whole replay."""
        return (self.bias_error or 0.0) + (self.spread_error or 0.0)


def sizes_to_check(sizes: Sequence[float], count: int) -> list[float]:
    """So many of the sizes, the smallest and the largest among them and the others evenly between; one: the middle."""
    if count == 1 and sizes:
        return [sizes[len(sizes) // 2]]
    places = np.linspace(0, len(sizes) - 1, min(count, len(sizes))).round().astype(int)
    return [sizes[place] for place in dict.fromkeys(places.tolist())]


def estimates(gains: Mapping[float, Sequence[float]], whole: Mapping[float, float]) -> dict[float, Estimate]:
    """Size → estimate, for every size that is not among `whole`.

    `gains`: size → gain on LRU of every sample, in one order, sizes of `whole` included; `whole`: size → gain of a
    whole replay.
    """
    samples = {size: np.asarray(found, dtype=float) for size, found in gains.items()}
    anchors = sorted(whole)
    missed = bias_error(samples, whole)
    found = {}
    for size, sample in samples.items():
        if size in whole:
            continue
        contrast = sample - _between(size, {a: samples[a] for a in anchors}) if anchors else sample
        bias = _between(size, {a: whole[a] - samples[a].mean() for a in anchors}) if anchors else 0.0
        found[size] = Estimate(float(sample.mean() + bias), float(bias), missed, _spread_error(contrast))
    return found


def bias_error(samples: Mapping[float, Vector], whole: Mapping[float, float]) -> float | None:
    """The most by which a size of `whole` is missed when foretold from its neighbours; of one or two, the most bias."""
    biases = {size: float(gain - np.mean(samples[size])) for size, gain in whole.items()}
    if not biases:
        return None
    inner = sorted(biases)[1:-1]
    if not inner:
        return max(map(abs, biases.values()))
    rest = {size: {other: bias for other, bias in biases.items() if other != size} for size in inner}
    return max(abs(float(_between(size, rest[size])) - biases[size]) for size in inner)


def _between(size: float, known: Mapping[float, float] | Mapping[float, Vector]) -> float | Vector:
    """Interpolated over the logarithm of the size between its neighbours; beyond the ends, the value there."""
    below = max((at for at in known if at <= size), default=min(known))
    above = min((at for at in known if at >= size), default=max(known))
    if below >= above:
        return known[below] if size >= below else known[above]
    share = (log(size) - log(below)) / (log(above) - log(below))
    return (1 - share) * known[below] + share * known[above]


def _spread_error(contrast: Vector) -> float | None:
    from scipy.stats import t

    if contrast.size < 2:
        return None
    return float(t.ppf((1 + CONFIDENCE) / 2, contrast.size - 1) * contrast.std(ddof=1) / sqrt(contrast.size))
