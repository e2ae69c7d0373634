"""Hazard curves by age: the rate of use of what has waited so long, one curve per stratum of `hazard_model`.

Uses seen over seconds spent at each age, both begun with some evidence of a prior. Of a stratum that is a mean gap the
prior is the hazard of Lomax' law of that mean; of the others it is the curve of all kinds with traits (`pooled`), which
has a prior of its own. Shape 2 of Lomax' law, 2 / (gap + age), says that the longer the wait, the likelier uses have
ceased; an exponential law waited too long for documents that nobody asks for any more.

Source: Lomax, "Business failures", JASA 1954. Knows nothing of traits, or of what is done with a curve.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIRST_EDGE, RATIO, LAST_EDGE = 2.0, 1.25, 2e5  # seconds
NUM_AGES = 2 + ceil(log(LAST_EDGE / FIRST_EDGE) / log(RATIO))
EDGES = tuple(FIRST_EDGE * RATIO**i for i in range(NUM_AGES - 1))
"""Between the ages of a life table: a quarter wider each."""
WIDTHS: Floats = np.diff([0.0, *EDGES, FIRST_EDGE * RATIO ** (NUM_AGES - 1)])
MIDDLES: Floats = np.array([0.0, *EDGES]) + WIDTHS / 2


class Curves:
    """Hazard by age, a row per stratum, each drawn towards that of its gap or of all kinds with traits (`pooled`)."""

    def __init__(
        self,
        strata: Sequence[Hashable],
        stratum: NDArray[np.intp],
        uses: Floats,
        has_traits: NDArray[np.bool_],
        prior: Floats,
        evidence: float,
    ) -> None:
        """`stratum`: the place of each kind, a row of `uses`, among `strata`."""
        self.pooled = prior
        self._prior, self._evidence = prior, evidence
        self._members: Floats = (np.arange(len(strata))[:, None] == stratum).astype(np.float64)
        self._with_traits: Floats = has_traits.astype(np.float64)
        self._seen: Floats = self._members @ uses + evidence
        self._all_seen: Floats = self._with_traits @ uses + 2 * evidence
        self._lone = np.array([isinstance(value, float) for value in strata])
        gaps = np.array([value for value in strata if isinstance(value, float)])
        self._by_gap: Floats = 2 / (gaps[:, None] + MIDDLES)
        """Of Lomax' law of this mean and shape 2: the longer the wait, the likelier that uses have ceased."""

    def fitted(self, exposure: Floats) -> Floats:
        """The curves under an exposure, in seconds by kind and age, that already counts the factors of traits."""
        strength = 2 * self._evidence
        self.pooled = self._all_seen / (self._with_traits @ exposure + strength / self._prior)
        towards = np.tile(self.pooled, (len(self._lone), 1))
        towards[self._lone] = self._by_gap
        fitted: Floats = self._seen / (self._members @ exposure + self._evidence / towards)
        return fitted
