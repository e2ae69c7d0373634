"""How likely is it that a block of some kind and age is used now, and how long is it worth waiting for that?

Every stay of a run of blocks (from one use to the next, or to where it was lost sight of) is one line of a life table
of its kind: so many were still waiting at this age, so many of them were used. The rate of use by kind and age, the
*hazard*, is taken to be a curve over age, one per stratum, times a factor per trait of the kind (proportional hazards),
fitted by going round the factors: factor = uses seen / uses expected. Few observations are drawn towards the curve of
all strata, and that towards 1/(age + constant), under which the order is LRU's; those of kinds that only their mean gap
tells apart towards 2/(gap + age), the hazard of Lomax' law.

What a block is worth is then the steepest chord of its curve of hits over occupancy from its age on: the best rate of
hits per second of memory that some patience would earn (Gittins' index). A question that takes at least a minute to
think of is waited for; one that was due ten minutes ago is not.

Sources: Cox, "Regression models and life-tables", JRSS B 1972; Lomax, "Business failures", JASA 1954; Gittins, "Bandit
processes and dynamic allocation indices", JRSS B 1979; the hit density of Beckmann, Chen, Cidon, "LHD", NSDI 2018, is
its relative for single objects.

Knows nothing of blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from cache.evictor.hazard_curves import EDGES, MIDDLES, NUM_AGES, WIDTHS, Curves, Floats

Kind = tuple[Hashable, ...]
"""(stratum, trait, trait, …). A kind without traits, each None, is told by its stratum alone: a float, the mean gap
between uses in seconds."""

ROUNDS = 3
MOST_WEIGHT = 1e12
LEAST = 0.01
"""A kind seen less than this, after forgetting, is dropped once nobody of it waits."""


class Life:
    """The life table of a kind: stays that ended at each age, those of them that ended with a use, and its worth."""

    __slots__ = ("ends", "kind", "place", "uses", "worth")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.ends = [0.0] * NUM_AGES
        self.uses = [0.0] * NUM_AGES
        self.place = 0
        """Among all life tables, at a fit."""
        self.worth: list[float] | None = None
        """Of waiting at each age, once somebody asked since the last fit."""


class HazardModel:
    """Life tables by kind, the model fitted to them, and the worth of waiting under it."""

    def __init__(self, evidence: float = 10.0, rate: float = 0.3, offset: float = 60.0) -> None:
        """`evidence`: uses that weigh as much as the prior; prior hazard = `rate` / (age + `offset` seconds)."""
        self._prior: Floats = rate / (MIDDLES + offset)
        self._evidence = evidence
        self._lives: dict[Kind, Life] = {}
        self._factors: list[dict[Hashable, float]] = []
        self._curves: dict[Hashable, Floats] = {}
        self._pooled = self._prior
        self._weight = 1.0
        """Of a stay that ends now: older ones count less by weighing less (forward decay)."""

    def life(self, kind: Kind) -> Life:
        """The life table of a kind; to be held by those who wait, and only as long as they are told to `fit`."""
        life = self._lives.get(kind)
        if life is None:
            life = self._lives[kind] = Life(kind)
        return life

    def observe(self, life: Life, age: float, used: bool) -> None:
        """One stay ended at `age` seconds: with a use, or out of sight."""
        place = bisect_right(EDGES, age)
        life.ends[place] += self._weight
        if used:
            life.uses[place] += self._weight

    def worth(self, life: Life) -> list[float]:
        """Hits per second of memory that waiting for a block of this kind earns at best, by age (`EDGES`)."""
        worth = life.worth
        if worth is None:
            worth = life.worth = steepest_chords(self._hazards(life.kind).tolist(), WIDTHS.tolist())
        return worth

    def fit(self, waiting: Sequence[Life], ages: Floats, keep: float) -> None:
        """Refit to all stays: those that ended, and those that still wait, each with its life table and age.

        `keep`: what the evidence so far counts from now on, between 0 and 1.
        """
        self._weight /= keep
        if self._weight > MOST_WEIGHT:
            self._rescale()
        lives = list(self._lives.values())
        for place, life in enumerate(lives):
            life.place, life.worth = place * NUM_AGES, None
        places = np.array([life.place for life in waiting], dtype=np.intp) + np.searchsorted(EDGES, ages, "right")
        waits = np.bincount(places, None, len(lives) * NUM_AGES).reshape(-1, NUM_AGES)
        ends = np.array([life.ends for life in lives]).reshape(-1, NUM_AGES) / self._weight
        known = waits.any(axis=1) | (ends.sum(axis=1) >= LEAST)
        self._lives = {life.kind: life for life, is_known in zip(lives, known, strict=True) if is_known}
        if self._lives:
            uses = np.array([life.uses for life in self._lives.values()]) / self._weight
            self._regress(list(self._lives), uses, self._exposure(ends[known] + waits[known]))

    def _rescale(self) -> None:
        for life in self._lives.values():
            life.uses = [count / self._weight for count in life.uses]
            life.ends = [count / self._weight for count in life.ends]
        self._weight = 1.0

    def _exposure(self, ends: Floats) -> Floats:
        """Seconds spent at each age: everybody who got there, half a bin for those who ended in it."""
        reached = ends[:, ::-1].cumsum(axis=1)[:, ::-1]
        seconds: Floats = (reached - ends / 2) * WIDTHS
        return seconds

    def _regress(self, kinds: list[Kind], uses: Floats, exposure: Floats) -> None:
        strata, stratum = _numbered(kind[0] for kind in kinds)
        traits = [_numbered(kind[i] for kind in kinds) for i in range(1, len(kinds[0]))]
        has_traits = np.array([kind[1] is not None for kind in kinds])
        known = self._factors or [{} for _ in traits]
        factors = [
            np.array([before.get(value, 1.0) for value in values])
            for before, (values, _) in zip(known, traits, strict=True)
        ]
        product = np.prod([factor[codes] for factor, (_, codes) in zip(factors, traits, strict=True)], axis=0)
        curves = Curves(list(strata), stratum, uses, has_traits, self._prior, self._evidence)
        total = uses.sum(axis=1) * has_traits
        prior = self._evidence / 2
        for _ in range(ROUNDS):
            expected = (exposure * curves.fitted(exposure * product[:, None])[stratum]).sum(axis=1)
            for factor, (values, codes) in zip(factors, traits, strict=True):
                product /= factor[codes]
                weights = np.bincount(codes, expected * product * has_traits, len(values))
                factor[:] = (np.bincount(codes, total, len(values)) + prior) / (weights + prior)
                factor /= max((factor * weights).sum(), 1e-12) / max(weights.sum(), 1e-12)
                if None in values:
                    factor[values[None]] = 1.0
                product *= factor[codes]
        fitted = curves.fitted(exposure * product[:, None])
        self._pooled = curves.pooled
        self._curves = {value: fitted[place] for value, place in strata.items()}
        self._factors = [
            {value: float(factor[place]) for value, place in values.items()}
            for factor, (values, _) in zip(factors, traits, strict=True)
        ]

    def _hazards(self, kind: Kind) -> Floats:
        factor = 1.0
        for known, trait in zip(self._factors, kind[1:], strict=False):
            factor *= known.get(trait, 1.0)
        return self._curves.get(kind[0], self._pooled) * factor


def steepest_chords(hazards: list[float], widths: list[float]) -> list[float]:
    """For every age, the steepest chord from there of the curve (seconds occupied, hits) of a block that waits on.

    Walks from old to young and joins an age to its successors while they earn more than it does itself.
    """
    best = [0.0] * len(hazards)
    later: list[tuple[float, float, float, float]] = []
    """Of joined ages, youngest last: hits per second, hits, seconds, share that waits on."""
    for age in range(len(hazards) - 1, -1, -1):
        hazard = hazards[age]
        alive = exp(-hazard * widths[age])
        hits, seconds, rate = 1 - alive, (1 - alive) / hazard, hazard
        while later and later[-1][0] > rate:
            _, more_hits, more_seconds, still = later.pop()
            hits, seconds, alive = hits + alive * more_hits, seconds + alive * more_seconds, alive * still
            rate = hits / seconds
        later.append((rate, hits, seconds, alive))
        best[age] = rate
    return best


def _numbered(values: Iterable[Hashable]) -> tuple[dict[Hashable, int], NDArray[np.intp]]:
    """Distinct values with their numbers, and the number of each value."""
    numbers: dict[Hashable, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return numbers, np.array(codes, dtype=np.intp)
