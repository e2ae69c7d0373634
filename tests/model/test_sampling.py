"""Which token comes next, and that nothing but the request decides it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.sampling import SamplingParams, best, penalised, sample, score, uniform

GREEDY = SamplingParams(temperature=0)


def draw(row: list[float], count: int = 4000, **options: object) -> Counter[int]:
    params = SamplingParams(seed=5, **options)
    logits = torch.tensor([row] * count)
    return Counter(s.token_id for s in sample(logits, [params] * count, [[]] * count, range(count)))


def test_greedy_takes_the_largest_and_the_lowest_id_on_ties() -> None:
    assert [s.token_id for s in sample(torch.tensor([[0.0, 3, 3], [5, 5, 1]]), [GREEDY] * 2, [[], []], [0, 0])] == [
        1,
        0,
    ]


def test_frequencies_follow_the_softmax() -> None:
    row = [0.0, 1.0, 2.0, -1.0]
    wanted = torch.softmax(torch.tensor(row), 0)
    seen = draw(row)
    for token in range(4):
        assert abs(seen[token] / 4000 - float(wanted[token])) < 0.03


def test_temperature_sharpens_and_flattens() -> None:
    row = [0.0, 1.0]
    assert draw(row, temperature=0.1)[1] > 3990
    assert abs(draw(row, temperature=50.0)[1] - 2000) < 150


def test_top_k_top_p_and_min_p_leave_what_their_papers_leave() -> None:
    row = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1])).tolist()
    assert set(draw(row, top_k=2)) == {0, 1}
    assert set(draw(row, top_p=0.69)) == {0, 1}
    assert set(draw(row, top_p=0.71)) == {0, 1, 2}
    assert set(draw(row, min_p=0.6)) == {0, 1}
    assert set(draw(row, top_k=3, top_p=0.5)) == {0, 1}
    assert set(draw(row, top_p=1e-9)) == {0}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_row_says_the_same_in_any_batch(data: st.DataObject) -> None:
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    rows = data.draw(st.integers(1, 6))
    logits = torch.randn(rows, 300, generator=g) * 3
    params = [
        SamplingParams(
            temperature=data.draw(st.sampled_from([0.0, 0.7, 1.0])), top_k=data.draw(st.sampled_from([0, 1, 40])),
            top_p=data.draw(st.sampled_from([1.0, 0.9])), min_p=data.draw(st.sampled_from([0.0, 0.05])),
            repetition_penalty=data.draw(st.sampled_from([1.0, 1.3])), logprobs=3,
            seed=data.draw(st.integers(0, 2**64)),
        )
        for _ in range(rows)
    ]  # fmt: skip
    histories = [[data.draw(st.integers(0, 299)) for _ in range(5)] for _ in range(rows)]
    draws = [data.draw(st.integers(0, 1000)) for _ in range(rows)]
    together = sample(logits, params, histories, draws)
    for r in range(rows):
        assert sample(logits[r : r + 1], [params[r]], [histories[r]], [draws[r]]) == [together[r]]


def test_draws_depend_on_seed_and_number_alone() -> None:
    assert uniform(3, 7) == uniform(3, 7)
    numbers = {uniform(seed, draw) for seed in range(20) for draw in range(20)}
    assert len(numbers) == 400
    assert all(0 <= u < 1 for u in numbers)


def test_without_a_seed_two_draws_differ() -> None:
    assert uniform(None, 0) != uniform(None, 0)


def test_the_penalty_divides_what_is_likely_and_multiplies_what_is_not() -> None:
    row = penalised(torch.tensor([2.0, -2.0, 1.0]), [0, 1, 1], 2.0)
    assert row.tolist() == [1.0, -4.0, 1.0]
    params = SamplingParams(temperature=0, repetition_penalty=3.0)
    assert sample(torch.tensor([[2.0, 1.0]]), [params], [[0]], [0])[0].token_id == 1


def test_log_probabilities_are_the_models_own() -> None:
    logits = torch.randn(3, 50)
    wanted = torch.log_softmax(logits, -1)
    params = SamplingParams(temperature=0.3, top_k=5, seed=1, logprobs=4)
    for r, s in enumerate(sample(logits, [params] * 3, [[]] * 3, [0] * 3)):
        assert s.logprob == pytest.approx(float(wanted[r, s.token_id]), abs=1e-5)
        assert [token for token, _ in s.top] == torch.topk(logits[r], 4).indices.tolist()
    assert score(logits, [4, 5, 6])[1].logprob == pytest.approx(float(wanted[1, 5]), abs=1e-5)


def test_beams_get_two_candidates_each() -> None:
    assert len(sample(torch.randn(1, 50), [SamplingParams(beam_width=3)], [[]], [0])[0].top) == 6


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=30), st.integers(1, 30))
def test_the_best_come_in_order_and_the_lower_id_first(row: list[float], count: int) -> None:
    wanted = sorted(range(len(row)), key=lambda i: (-row[i], i))[:count]
    assert best(torch.tensor(row), count).tolist() == wanted


def test_nan_logits_are_refused_with_the_row() -> None:
    logits = torch.zeros(2, 5)
    logits[1, 3] = float("nan")
    with pytest.raises(ValueError, match="row 1 hold NaN"):
        sample(logits, [GREEDY] * 2, [[]] * 2, [0, 0])


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_tokens", 0), ("temperature", -1), ("top_k", -1), ("top_p", 0), ("top_p", 1.1), ("min_p", 2),
     ("repetition_penalty", 0), ("n", 0), ("best_of", 0), ("logprobs", -1), ("temperature", float("nan"))],
)  # fmt: skip
def test_a_parameter_out_of_range_is_named(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})


@pytest.mark.parametrize("vocab_size", [512, 49_152])
def test_log_probabilities_of_a_row_do_not_depend_on_the_rows_beside_it(vocab_size: int) -> None:
    logits = torch.randn(64, vocab_size, generator=torch.Generator().manual_seed(0)) * 0.3
    tokens = list(range(64))
    torch.set_num_threads(2)  # how a sum is cut among threads is what could differ
    try:
        together = score(logits, tokens, 2)
        alone = [one for r in range(64) for one in score(logits[r : r + 1], tokens[r : r + 1], 2)]
    finally:
        torch.set_num_threads(1)
    assert together == alone
