"""What a request may ask for and what it gets: stops, log-probabilities, streams, errors, aborts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.engines import fake_engine, letters

from model.sampling import SamplingParams

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]
GREEDY = SamplingParams(max_tokens=24, temperature=0)


def spoken() -> tuple[int, ...]:
    return fake_engine().generate([PROMPT], GREEDY)[0].token_ids


def test_a_stop_token_ends_the_answer_and_is_not_part_of_its_text() -> None:
    tokens = spoken()
    stop = tokens[7]
    at = tokens.index(stop)
    result = fake_engine().generate([PROMPT], SamplingParams(max_tokens=24, temperature=0, stop_token_ids=(stop,)))[0]
    assert result.token_ids == tokens[: at + 1]
    assert result.completions[0].finish_reason == "stop"
    assert result.text == letters(tokens[:at])


def test_the_end_of_sequence_ends_the_answer_unless_it_is_ignored() -> None:
    tokens = spoken()
    at = tokens.index(tokens[5])
    engine = fake_engine(eos_ids=(tokens[5],))
    assert engine.generate([PROMPT], GREEDY)[0].token_ids == tokens[: at + 1]
    ignoring = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    assert engine.generate([PROMPT], ignoring)[0].token_ids == tokens


def test_a_stop_string_spread_over_tokens_ends_the_answer_and_is_cut_from_its_text() -> None:
    text = letters(spoken())
    stop = text[6:9]
    result = fake_engine().generate([PROMPT], SamplingParams(max_tokens=24, temperature=0, stop=("#", stop)))[0]
    assert result.text == text[: text.index(stop)]
    assert len(result.token_ids) == text.index(stop) + 3
    assert result.completions[0].finish_reason == "stop"


@pytest.mark.parametrize("shape", [{}, {"n": 3}, {"beam_width": 2}, {"stop": ("qz", "e")}])
def test_a_stream_says_what_generate_says_and_never_takes_text_back(shape: dict[str, Any]) -> None:
    params = SamplingParams(max_tokens=12, seed=5, **shape)
    asked = [PROMPT, PROMPT[:4], PROMPT[2:]]
    expected = fake_engine().generate(asked, params)
    told: dict[tuple[int, int], list[Any]] = {}
    results: dict[int, Any] = {}
    for piece in fake_engine().stream(asked, params):
        place = told.setdefault((piece.index, piece.branch), [(), ""])
        place[0] += piece.token_ids
        place[1] += piece.text
        if piece.result is not None:
            assert piece.index not in results
            results[piece.index] = piece.result
    assert [results[i].completions for i in range(3)] == [result.completions for result in expected]
    for i, result in enumerate(expected):
        pieces = [tuple(told[i, branch]) for index, branch in sorted(told) if index == i]
        assert sorted(pieces) == sorted((c.token_ids, c.text) for c in result.completions)


def test_walking_away_from_a_stream_leaves_nothing_behind() -> None:
    engine = fake_engine()
    stream = engine.stream([PROMPT, PROMPT], GREEDY)
    next(stream)
    stream.close()
    assert not engine.scheduler.has_work
    assert engine.scheduler.manager.allocator.num_in_use == 0


def test_log_probabilities_belong_to_the_tokens_and_sum_up() -> None:
    params = SamplingParams(max_tokens=6, seed=2, logprobs=3)
    completion = fake_engine().generate([PROMPT], params)[0].completions[0]
    assert tuple(s.token_id for s in completion.logprobs) == completion.token_ids
    assert sum(s.logprob for s in completion.logprobs) == pytest.approx(completion.logprob)
    assert all(len(s.top) == 3 for s in completion.logprobs)


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_prompt_log_probabilities_bypass_the_cache_for_reading_but_fill_it(chunk: int | None) -> None:
    engine = fake_engine(max_chunk_tokens=chunk)
    scored = SamplingParams(max_tokens=2, temperature=0, prompt_logprobs=2)
    first = engine.generate([PROMPT], scored)[0]
    second = engine.generate([PROMPT], scored)[0]
    assert second.prompt_logprobs == first.prompt_logprobs
    assert second.hit_tokens == 0
    assert [s.token_id for s in first.prompt_logprobs] == PROMPT[1:]
    assert engine.generate([PROMPT], GREEDY)[0].hit_tokens == 8
    # Each is what the model thinks of that token after those before it.
    for at in range(1, len(PROMPT)):
        alone = fake_engine().generate([PROMPT[:at]], SamplingParams(max_tokens=1, temperature=0, logprobs=40))[0]
        top = dict(alone.completions[0].logprobs[0].top)
        assert first.prompt_logprobs[at - 1].logprob == pytest.approx(top[PROMPT[at]])


BAD: list[tuple[Any, SamplingParams, str]] = [
    ([], GREEDY, "empty"),
    ([1, 2, 40], GREEDY, "token id 40 is out of range"),
    ([1, -2], GREEDY, "int32"),
    ([1] * 512, GREEDY, "512 tokens; the model takes 512"),
    ([1] * 90, GREEDY, "needs 23 blocks of 4; the whole pool has 20"),
    ("a\ud800b", GREEDY, "no valid text"),
    ([("king", "hello")], GREEDY, "unknown role 'king'"),
    (PROMPT, SamplingParams(n=300), "300 branches"),
    (PROMPT, SamplingParams(n=3, beam_width=2), "n=3 answers are asked of 2 beams"),
    (PROMPT, SamplingParams(stop=("",)), "a stop string is empty"),
    (["a", "b"], GREEDY, "a list of (role, content) pairs"),
]


@pytest.mark.parametrize(("prompt", "params", "message"), BAD, ids=range(len(BAD)))
def test_a_request_that_cannot_be_served_says_why_and_the_others_go_on(
    prompt: Any, params: SamplingParams, message: str
) -> None:
    engine = fake_engine(20)
    results = engine.generate([PROMPT, prompt, PROMPT], [GREEDY, params, GREEDY])
    assert message in str(results[1].error)
    assert results[1].completions[0].finish_reason == "error"
    assert results[0].token_ids == results[2].token_ids == spoken()
    assert engine.scheduler.manager.allocator.num_in_use == 0


def test_a_request_that_outgrows_the_whole_pool_fails_alone() -> None:
    engine = fake_engine(10)
    long = SamplingParams(max_tokens=60, temperature=0)
    results = engine.generate([PROMPT, PROMPT[:3]], [long, SamplingParams(max_tokens=5, temperature=0)])
    assert "the pool of 10 is used up" in str(results[0].error)
    assert results[0].token_ids == fake_engine().generate([PROMPT], long)[0].token_ids[: 40 - 9 + 1]
    assert results[1].error is None
    assert engine.scheduler.manager.allocator.num_in_use == 0


def test_the_model_length_ends_an_answer() -> None:
    result = fake_engine(max_model_len=16).generate([PROMPT], GREEDY)[0]
    assert result.token_ids == spoken()[: 16 - 9]
    assert result.completions[0].finish_reason == "length"


@pytest.mark.parametrize("when", range(14))
@pytest.mark.parametrize("shape", [{}, {"n": 2}, {"beam_width": 2}])
def test_an_abort_at_any_step_leaves_the_survivors_answers_unchanged(when: int, shape: dict[str, Any]) -> None:
    params = SamplingParams(max_tokens=8, seed=1, **shape)
    asked = [PROMPT + [i] * i for i in range(4)]
    expected = [result.completions for result in fake_engine().generate(asked, params)]
    engine = fake_engine(12, max_num_batched_tokens=6, max_num_seqs=4, host_blocks=8)
    requests = [engine.submit(prompt, params) for prompt in asked]
    for step in range(500):
        if step == when:
            engine.abort(requests[1])
            engine.abort(requests[1])  # a second time does nothing
        engine.step()
        engine.scheduler.check_integrity()
        if not engine.scheduler.has_work:
            break
    assert requests[1].branches[0].finish_reason in ("abort", "length")
    for i in (0, 2, 3):
        assert engine.result(requests[i]).completions == expected[i]
    assert engine.scheduler.manager.allocator.num_in_use == 0
    assert engine.scheduler.preemption.num_free == 8


def test_an_interrupted_run_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine()

    def interrupt(*_: Any) -> torch.Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.loop.executor.executor.runner, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.generate([PROMPT, PROMPT], GREEDY)
    assert not engine.scheduler.has_work
    assert engine.scheduler.manager.allocator.num_in_use == 0
