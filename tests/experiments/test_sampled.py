"""Estimates from samples: what the stated error holds, and that it is not merely large."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from experiments.sampled import estimates, sizes_to_check

SIZES = [float(size) for size in np.geomspace(1000, 64000, 9).round()]


def drawn(draw: np.random.Generator, count: int) -> tuple[dict[float, float], dict[float, list[float]]]:
    """Gains of whole replays and of samples: their bias bends over the sizes, and most of their luck is shared."""
    place = np.array([log(size / SIZES[0]) / log(SIZES[-1] / SIZES[0]) for size in SIZES])
    truth = draw.normal(0, 0.03) * (1 - place) + draw.normal(0, 0.02) * place * (1 - place)
    bias = draw.normal(0, 0.03) * (1 - place) ** 2 + draw.normal(0, 0.02) * np.sin(draw.uniform(1, 4) * place)
    luck = draw.normal(0, 0.01, size=(count, 1)) * (1 - 0.5 * place) + draw.normal(0, 0.002, size=(count, len(SIZES)))
    samples = truth + bias + luck
    return dict(zip(SIZES, truth.tolist(), strict=True)), {s: samples[:, i].tolist() for i, s in enumerate(SIZES)}


@pytest.mark.parametrize("count", [2, 4])
def test_the_stated_error_holds_in_95_of_100_cases_where_the_spread_alone_would_not(count: int) -> None:
    draw = np.random.default_rng(count)
    held = blind = total = 0
    widths = []
    for _ in range(300):
        truth, samples = drawn(draw, count)
        found = estimates(samples, {size: truth[size] for size in sizes_to_check(SIZES, 4)})
        unchecked = estimates({size: samples[size] for size in found}, {})
        for size, told in found.items():
            held += abs(told.gain - truth[size]) <= told.error
            blind += abs(unchecked[size].gain - truth[size]) <= unchecked[size].error
            widths.append(told.error)
            total += 1
    assert held >= 0.95 * total
    if count == 4:
        assert blind < 0.75 * total, "else the bias would be no danger here, and the test would prove nothing"
        assert np.mean(widths) < 0.02, "an interval may not hold by being wide"


def test_a_bias_that_is_straight_over_the_logarithm_of_the_size_is_taken_out_whole() -> None:
    truth = {size: 0.1 - 0.01 * log(size) for size in SIZES}
    samples = {size: [gain + luck + 0.02 - 0.003 * log(size) for luck in (0.0, 0.05)] for size, gain in truth.items()}
    found = estimates(samples, {size: truth[size] for size in (SIZES[0], SIZES[4], SIZES[-1])})
    assert sorted(found) == [size for i, size in enumerate(SIZES) if i not in (0, 4, 8)]
    for size, told in found.items():
        assert told.gain == pytest.approx(truth[size])
        assert told.error == pytest.approx(0, abs=1e-9), "luck that all sizes share is none of theirs"
        assert told.bias == pytest.approx(0.003 * log(size) - 0.02 - 0.025)


def test_a_bias_that_jumps_between_the_checks_is_in_the_error() -> None:
    samples = {size: [0.0, 0.0] for size in SIZES}
    jumps = {SIZES[0]: 0.0, SIZES[4]: 0.05, SIZES[-1]: 0.0}
    assert {told.bias_error for told in estimates(samples, jumps).values()} == {0.05}


def test_with_too_few_whole_replays_to_foretell_one_all_bias_seen_is_error() -> None:
    samples = {size: [0.01, 0.03] for size in SIZES}
    one = estimates(samples, {SIZES[4]: 0.05})[SIZES[0]]
    assert (one.gain, one.bias_error) == (pytest.approx(0.05), pytest.approx(0.03))
    blind = estimates(samples, {})[SIZES[0]]
    assert (blind.bias, blind.bias_error) == (0.0, None)
    assert blind.error == pytest.approx(12.7062 * 0.01), "t(0.975; 1) standard errors"
    alone = estimates({size: [0.02] for size in SIZES}, {SIZES[4]: 0.05})[SIZES[0]]
    assert alone.spread_error is None
    assert alone.error == pytest.approx(0.03)


def test_checks_are_at_both_ends_and_evenly_between() -> None:
    assert sizes_to_check(SIZES, 4) == [SIZES[0], SIZES[3], SIZES[5], SIZES[8]]
    assert sizes_to_check(SIZES, 1) == [SIZES[4]]
    assert sizes_to_check(SIZES[:2], 4) == SIZES[:2]
    assert sizes_to_check([], 4) == sizes_to_check([], 1) == sizes_to_check(SIZES, 0) == []
