"""The model of hazards against its formulas spelled out stay by stay, and the shadow LRU against lists of blocks."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache.evictor.hazard_curves import EDGES, FIRST_EDGE, NUM_AGES, RATIO
from cache.evictor.hazard_model import ROUNDS, HazardModel, Kind, steepest_chords
from cache.evictor.rival import Rival, Visit

EVIDENCE, RATE, OFFSET = 7.0, 0.4, 45.0
BOUNDS = [0.0, *EDGES, FIRST_EDGE * RATIO ** (NUM_AGES - 1)]
AGES = range(NUM_AGES)
KINDS: list[Kind] = [("few", 1, "x"), ("few", 2, "x"), ("some", 2, "y"), ("some", 1, None), (90.0, None, None)]


class Stay(NamedTuple):
    """From one use to the next, or to where it was lost sight of, or until now."""

    kind: Kind
    age: float
    used: bool

    def at(self) -> int:
        """The bin it ends in."""
        return bisect_right(EDGES, self.age)

    def seconds(self, i: int) -> float:
        """Spent in a bin: all of those before the last, half of that one."""
        width = BOUNDS[i + 1] - BOUNDS[i]
        return width if i < self.at() else width / 2 if i == self.at() else 0.0


class ByHand:
    """Curves and factors by sums over stays; factors of an earlier fit are where the next one starts."""

    def __init__(self) -> None:
        self.factors: dict[tuple[int, object], float] = {}

    def fit(self, stays: Sequence[Stay]) -> None:
        known = list(dict.fromkeys(stay.kind for stay in stays))
        self.uses = defaultdict[tuple[Kind, int], float](float)
        self.seconds = defaultdict[tuple[Kind, int], float](float)
        for stay in stays:
            self.uses[stay.kind, stay.at()] += stay.used
            for i in AGES:
                self.seconds[stay.kind, i] += stay.seconds(i)
        self.kinds = known
        self.factors = {
            (place, kind[place]): self.factors.get((place, kind[place]), 1.0) for kind in known for place in (1, 2)
        }
        for _ in range(ROUNDS):
            curve = self.curves()
            expected = {
                kind: sum(self.seconds[kind, i] * curve(kind[0], i) for i in AGES)
                for kind in known
                if kind[1] is not None
            }
            for place in (1, 2):
                self.renew(place, expected)
        self.curve = self.curves()

    def renew(self, place: int, expected: dict[Kind, float]) -> None:
        """Factor = (uses seen + prior) / (uses expected under all other factors + prior), then their mean is one."""
        values = list(dict.fromkeys(kind[place] for kind in self.kinds))
        weight = {
            value: sum(e * self.factor(kind, but=place) for kind, e in expected.items() if kind[place] == value)
            for value in values
        }
        for value in values:
            seen = sum(self.uses[kind, i] for kind in expected if kind[place] == value for i in AGES)
            self.factors[place, value] = (seen + EVIDENCE / 2) / (weight[value] + EVIDENCE / 2)
        mean = sum(self.factors[place, value] * weight[value] for value in values) / sum(weight.values())
        for value in values:
            self.factors[place, value] = 1.0 if value is None else self.factors[place, value] / mean

    def factor(self, kind: Kind, but: int = 0) -> float:
        product = 1.0
        for place in (1, 2):
            product *= self.factors.get((place, kind[place]), 1.0) if place != but else 1.0
        return product

    def curves(self) -> Callable[[object, int], float]:
        middles = [(BOUNDS[i] + BOUNDS[i + 1]) / 2 for i in AGES]
        told = [kind for kind in self.kinds if kind[1] is not None]

        def spent(kinds: list[Kind], i: int) -> float:
            return sum(self.seconds[kind, i] * self.factor(kind) for kind in kinds)

        def seen(kinds: list[Kind], i: int) -> float:
            return sum(self.uses[kind, i] for kind in kinds)

        table: dict[tuple[object, int], float] = {}
        for i in AGES:
            prior = RATE / (middles[i] + OFFSET)
            pooled = (seen(told, i) + 2 * EVIDENCE) / (spent(told, i) + 2 * EVIDENCE / prior)
            for stratum in {kind[0] for kind in self.kinds}:
                own = [kind for kind in self.kinds if kind[0] == stratum]
                towards = 2 / (stratum + middles[i]) if isinstance(stratum, float) else pooled
                table[stratum, i] = (seen(own, i) + EVIDENCE) / (spent(own, i) + EVIDENCE / towards)
        return lambda stratum, i: table[stratum, i]

    def worth(self, kind: Kind) -> list[float]:
        hazards = [self.curve(kind[0], i) * self.factor(kind) for i in AGES]
        return steepest_chords(hazards, [BOUNDS[i + 1] - BOUNDS[i] for i in AGES])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_fit_is_what_its_formulas_say_stay_by_stay(seed: int) -> None:
    draw = random.Random(seed)
    model, by_hand = HazardModel(EVIDENCE, RATE, OFFSET), ByHand()
    ended: list[Stay] = []
    for _ in range(2):
        for _ in range(draw.randrange(1, 60)):
            stay = Stay(draw.choice(KINDS), draw.expovariate(1 / draw.choice((3.0, 80.0, 4000.0))), draw.random() < 0.5)
            model.observe(model.life(stay.kind), stay.age, stay.used)
            ended.append(stay)
        waiting = [Stay(draw.choice(KINDS[:3]), draw.uniform(0, 300), False) for _ in range(draw.randrange(1, 9))]
        model.fit([model.life(stay.kind) for stay in waiting], np.array([stay.age for stay in waiting]), 1.0)
        by_hand.fit([*ended, *waiting])
        for kind in by_hand.kinds:
            assert model.worth(model.life(kind)) == pytest.approx(by_hand.worth(kind))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), capacity=st.integers(6, 60))
def test_the_shadow_lru_scores_what_whole_requests_in_a_list_would(seed: int, capacity: int) -> None:
    """LRU holds the blocks of the latest requests: the oldest request goes, all of it, once they do not fit."""
    draw, rival = random.Random(seed), Rival()
    visits: list[Visit] = []
    held: list[set[int]] = []  # per request the blocks it was the last to use; emptied where it had to go
    owner: dict[int, int] = {}
    resident = set[int]()
    ours = lrus = 0
    for index in range(150):
        visits.append(Visit(index, 0.0, 0))
        held.append(set())
        rival.begun(visits[-1], capacity)
        while sum(map(len, held)) > capacity:
            next(blocks for blocks in held if blocks).clear()
        first = draw.randrange(40)
        asked = range(first, first + draw.randrange(1, 6))
        for last in sorted({owner[block] for block in asked if block in owner}):
            for here in (True, False):  # what is resident is told apart from what is not
                part = [block for block in asked if owner.get(block) == last and (block in resident) == here]
                if part:
                    rival.wanted(visits[last], len(part), here)
                    lrus += sum(block in held[last] for block in part)
                    ours += len(part) * here
        for block in asked:
            if block in owner:
                held[owner[block]].discard(block)
            owner[block] = index
        rival.touched(visits[-1], 1)  # what it matched and what it adds are told apart
        rival.touched(visits[-1], len(asked) - 1)
        held[-1].update(asked)
        resident.update(asked)
        resident -= {block for block in sorted(resident) if draw.random() < 0.1}
    assert (rival._lrus, rival._ours) == (lrus, ours)
    assert lrus > 0
