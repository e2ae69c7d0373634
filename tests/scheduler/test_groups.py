"""Several answers to one prompt: forks share what they can, and say what they would have said alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from support.engines import fake_engine
from support.fake_model import FakeRunner, FakeStore

from model.batch import Batch
from model.sampling import SamplingParams
from scheduler.beam import score

PROMPT = [5, 6, 7, 8, 9, 10]


def log_probabilities(tokens: list[int]) -> list[float]:
    """What the fake model thinks comes next, asked in one go over a store of its own."""
    n = len(tokens)
    runner = FakeRunner(FakeStore(1, n))
    batch = Batch(tokens, range(n), range(n), [0, n], [n], [[0]], [n - 1])
    return torch.log_softmax(runner.run(batch)[0].double(), -1).tolist()


def test_branches_share_the_prompt_and_copy_only_the_block_they_write_to() -> None:
    engine = fake_engine(block_size=4)
    request = engine.submit(PROMPT, SamplingParams(max_tokens=5, seed=1, n=3))
    engine.step()  # prefill
    assert [branch.seq.block_table for branch in request.branches] == [request.branches[0].seq.block_table] * 3
    engine.step()  # everybody writes to the half-filled tail
    first, tails = zip(*(branch.seq.block_table for branch in request.branches), strict=True)
    assert len(set(first)) == 1
    assert len(set(tails)) == 3
    copies = [pairs for step in engine.loop.executor.steps for kind, pairs in step.memory if kind == "copy"]
    assert len(copies) == 1
    assert len(copies[0]) == 2, "the last owner of a shared tail needs no copy"


def test_sampled_branches_differ_and_greedy_ones_agree() -> None:
    drawn = fake_engine().generate([PROMPT], SamplingParams(max_tokens=8, seed=3, n=4))[0]
    assert len({c.token_ids for c in drawn.completions}) == 4
    greedy = fake_engine().generate([PROMPT], SamplingParams(max_tokens=8, temperature=0, n=3))[0]
    assert len({c.token_ids for c in greedy.completions}) == 1


def test_best_of_keeps_the_likeliest_of_what_n_would_have_given() -> None:
    every = fake_engine().generate([PROMPT], SamplingParams(max_tokens=6, seed=4, n=5))[0].completions
    best = fake_engine().generate([PROMPT], SamplingParams(max_tokens=6, seed=4, n=2, best_of=5))[0].completions
    assert list(best) == sorted(every, key=lambda c: -c.logprob)[:2]


def test_beams_as_wide_as_the_vocabulary_find_the_likeliest_answer_of_all() -> None:
    width, length = 40, 2
    found = fake_engine(max_num_seqs=64).generate([PROMPT], SamplingParams(max_tokens=length, beam_width=width))[0]
    first = log_probabilities(PROMPT)
    total = {
        (a, b): first[a] + second[b]
        for a, second in ((a, log_probabilities([*PROMPT, a])) for a in range(40))
        for b in range(40)
    }
    best = max(product(range(40), repeat=2), key=lambda pair: total[pair])
    assert found.token_ids == best
    assert found.completions[0].logprob == pytest.approx(total[best], abs=1e-4)


def plain_beam_search(params: SamplingParams, eos: int) -> list[tuple[int, ...]]:
    """Beam search over lists, without cache, forks or batches."""
    width, live, done = params.beam_width, [((), 0.0)], list[Any]()
    for length in range(1, params.max_tokens + 1):
        options = sorted(
            (((*tokens, t), total + lp) for tokens, total in live
             for t, lp in enumerate(log_probabilities([*PROMPT, *tokens]))),
            key=lambda option: -option[1],
        )  # fmt: skip
        done += [(score(lp, length, params.length_penalty), seq) for seq, lp in options[:width] if seq[-1] == eos]
        live = [option for option in options if option[0][-1] != eos][:width]
        if length == params.max_tokens:
            done += [(score(lp, length, params.length_penalty), seq) for seq, lp in live]
        bound = max(lp / n**params.length_penalty for _, lp in live for n in (length, params.max_tokens))
        if len(done) >= width and bound <= sorted((s for s, _ in done), reverse=True)[width - 1]:
            break
    return [seq for _, seq in sorted(done, key=lambda found: -found[0])[: params.n]]


@pytest.mark.parametrize("eos", range(8))
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 3.0])
def test_beam_search_equals_one_over_plain_lists(eos: int, length_penalty: float) -> None:
    params = SamplingParams(max_tokens=6, beam_width=3, n=3, length_penalty=length_penalty)
    found = fake_engine(eos_ids=(eos,)).generate([PROMPT], params)[0]
    assert [c.token_ids for c in found.completions] == plain_beam_search(params, eos)


def test_a_preempted_group_computes_what_its_branches_share_once() -> None:
    engine = fake_engine(caching=False, block_size=4)
    params = SamplingParams(max_tokens=8, seed=1, n=3)
    request = engine.submit(list(range(12)), params)
    for _ in range(4):
        engine.step()
    scheduler = engine.scheduler
    scheduler.set_weights_version("new", engine.clock.now())  # the fake model does not care, so the answer stays
    assert scheduler.manager.allocator.num_in_use == 0
    while scheduler.has_work:
        engine.step()
        scheduler.check_integrity()
    assert request.recomputed_tokens == 12 + 3 * 3, "the prompt once, then three tokens of each branch"
    expected = fake_engine().generate([list(range(12))], params)[0]
    assert engine.result(request).completions == expected.completions
