"""Intervals of paired differences hold what they promise, and pairing takes the luck of the traffic out."""

from __future__ import annotations

from math import nan

import numpy as np
import pandas
import pytest

from experiments.joint.differences import (
    BETTER,
    CONFIDENCE,
    EQUAL,
    ONE_SEED,
    UNCLEAR,
    WORSE,
    Difference,
    compare,
    effects,
    paired,
)
from experiments.joint.measures import MEASURES
from experiments.joint.table import Axes, table
from experiments.reporting.joined import read_records

GOODPUT, TTFT, _ = MEASURES


@pytest.mark.parametrize("seeds", [3, 4, 10])
def test_the_interval_holds_the_true_mean_as_often_as_it_says(seeds):
    draws, rounds = np.random.default_rng(seeds), 1500
    held = 0
    for _ in range(rounds):
        found = paired(draws.normal(2.0, 5.0, size=seeds).tolist())
        held += found.low <= 2.0 <= found.high
    assert abs(held / rounds - CONFIDENCE) < 0.025, "4 standard deviations of the count"


def test_the_interval_of_four_differences_is_what_a_table_of_t_gives():
    found = paired([1.0, 2.0, 3.0, 6.0])
    half = 3.182446 * np.std([1.0, 2.0, 3.0, 6.0], ddof=1) / 2  # t(0.975; 3)
    assert (found.mean, found.low, found.high) == pytest.approx((3.0, 3.0 - half, 3.0 + half))


def test_where_nothing_is_random_there_is_no_doubt_and_with_one_seed_no_interval():
    assert paired([0.25, 0.25, 0.25]) == Difference(0.25, 0.25, 0.25, 3)
    assert paired([0.0, 0.0]).verdict(GOODPUT) == EQUAL
    alone = paired([0.25])
    assert alone.mean == 0.25
    assert alone.verdict(GOODPUT) == ONE_SEED
    assert paired([]).verdict(GOODPUT) == ONE_SEED


@pytest.mark.parametrize(
    ("low", "high", "goodput", "ttft"),
    [
        (0.1, 0.3, BETTER, WORSE),
        (-0.3, -0.1, WORSE, BETTER),
        (-0.1, 0.3, UNCLEAR, UNCLEAR),
        (nan, nan, ONE_SEED, ONE_SEED),
    ],
)
def test_more_is_better_or_worse_as_the_measure_says(low, high, goodput, ttft):
    found = Difference((low + high) / 2, low, high, 4)
    assert (found.verdict(GOODPUT), found.verdict(TTFT)) == (goodput, ttft)


def compared(folder) -> tuple[pandas.DataFrame, pandas.DataFrame, Axes]:
    frame, axes = table(folder, read_records(folder)[0])
    return compare(frame, axes), effects(frame, axes), axes


def test_a_small_gain_shows_through_traffic_that_varies_far_more(grid):
    points, alone, axes = compared(grid)
    assert axes.policies == ["evictor", "order"]
    assert axes.settings == ["block_size"]
    spread = points.set_index(["block_size", "evictor", "order"])
    hazard, sieve = spread.loc[16, "hazard", "fcfs"], spread.loc[16, "sieve", "fcfs"]
    assert hazard.goodput_difference == pytest.approx(0.5, abs=0.1), "though seeds differ by about 3"
    assert hazard.goodput_verdict == BETTER
    assert hazard.ttft_p95_verdict == BETTER, "less is better"
    assert sieve.token_hit_rate_verdict == EQUAL
    assert (spread.loc[16, "lru", "fcfs"][["is_baseline", "goodput_verdict"]] == [True, EQUAL]).all()
    assert points.is_baseline.sum() == 2, "one per block size"
    order = alone[(alone.axis == "order") & (alone.block_size == 64)].iloc[0]
    assert (order.choice, order.instead_of, order.seeds) == ("longest_prefix", "fcfs", 4)
    assert order.goodput_verdict == EQUAL, "the order changes nothing in these records"
    gain = alone[(alone.choice == "hazard") & (alone.block_size == 64)].iloc[0]
    assert gain.goodput_verdict == BETTER


def test_a_difference_is_the_mean_over_the_seeds_both_have(put, tmp_path):
    for seed in range(4):
        put("lru", seed)
    for seed in (1, 2, 7):
        put("hazard", seed)
    points, _, _ = compared(tmp_path)
    row = points[points.evictor == "hazard"].iloc[0]
    assert row.seeds == 3
    assert row.goodput_difference == pytest.approx(0.5)


def test_luck_alone_is_called_not_distinguishable_most_of_the_time(put, tmp_path):
    for size in range(1, 41):
        for seed in range(3):
            put("lru", seed, block_size=size)
            put("sieve", seed, luck=1.0, block_size=size, ttft_p95=1.0)
        # the luck of a seed is the same at every size, so this is one draw told 40 times
    points, _, _ = compared(tmp_path)
    verdicts = points[points.evictor == "sieve"].goodput_verdict
    assert set(verdicts) == {UNCLEAR}
