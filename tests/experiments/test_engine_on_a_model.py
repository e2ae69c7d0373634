"""The engine over a real decoder (tiny, random weights) on a poisoned pool: chunks, sharing, swaps, aborts.

After every step, whatever block is free holds NaN, so a read of what nobody owns any more cannot go unnoticed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hydra.utils import instantiate
from support.conf import composed

from experiments.errors import UserError
from experiments.serving import build_engine
from model.sampling import SamplingParams
from scheduler.request import State

BASE = [(7 * i * i + 3 * i) % 500 for i in range(40)]
PROMPTS = [[*BASE[:23], 1, 2, 3], BASE, [*BASE[:9], 8, 8], [*BASE[:30], 4]]
PARAMS = [
    SamplingParams(max_tokens=7, temperature=0, ignore_eos=True),
    SamplingParams(max_tokens=7, temperature=0.9, seed=3, n=2, ignore_eos=True),
    SamplingParams(max_tokens=7, temperature=0, beam_width=2, ignore_eos=True),
    SamplingParams(max_tokens=7, temperature=0, prompt_logprobs=1, ignore_eos=True),
]


@cache
def model() -> Any:
    return instantiate(composed("model=tiny", config_name="generate").model.weights)


def poisoned_engine(*overrides: str, caching: bool = True) -> Any:
    cfg = composed("model=tiny", "block_size=4", "num_blocks=80", "poison=true", *overrides, config_name="generate")
    engine = build_engine(cfg, model(), caching)
    allocator, store = engine.scheduler.manager.allocator, engine.loop.executor.store

    def watch(*_: Any) -> None:
        store.poison_blocks([block for block in range(allocator.num_blocks) if allocator.state(block) == "free"])
        store.check_guard()

    engine.loop.watch = watch
    return engine


def spoken(result: Any) -> Any:
    return [(c.token_ids, c.finish_reason) for c in result.completions], result.prompt_logprobs


@cache
def expected() -> list[Any]:
    return [spoken(result) for result in poisoned_engine(caching=False).generate(PROMPTS, PARAMS)]


TREATMENTS = [
    (),
    *((f"scheduler.max_chunk_tokens={n}",) for n in (1, 2, 3, 4, 5, 11, 39, 40)),
    ("allocator=hash_chain",),
    ("allocator.partial_reuse=true",),
    ("num_blocks=17", "scheduler.max_num_seqs=4"),
    ("num_blocks=17", "preemption=swap", "scheduler.max_num_seqs=4", "allocator.partial_reuse=true"),
]


@pytest.mark.parametrize("treatment", TREATMENTS, ids=" ".join)
def test_however_it_is_served_it_says_the_same_cold_and_warm(treatment: tuple[str, ...]) -> None:
    engine = poisoned_engine(*treatment)
    for _ in range(2):
        results = engine.generate(PROMPTS, PARAMS)
        assert [spoken(result) for result in results] == expected()
        engine.scheduler.check_integrity()
    assert engine.scheduler.manager.allocator.num_in_use == 0
    assert (engine.scheduler.num_preemptions > 0) == ("num_blocks=17" in treatment)


@pytest.mark.parametrize("when", range(0, 18, 2))
def test_an_abort_at_any_step_changes_no_other_answer(when: int) -> None:
    engine = poisoned_engine("num_blocks=17", "preemption=swap", "scheduler.max_chunk_tokens=16")
    requests = [engine.submit(*one) for one in zip(PROMPTS, PARAMS, strict=True)]
    for step in range(200):
        if step == when:
            engine.abort(requests[1])
        engine.step()
        engine.scheduler.check_integrity()
        if not engine.scheduler.has_work:
            break
    assert all(request.state is State.FINISHED for request in requests)
    assert [spoken(engine.result(requests[i])) for i in (0, 2, 3)] == [expected()[i] for i in (0, 2, 3)]
    assert engine.scheduler.manager.allocator.num_in_use == 0


def test_a_pool_larger_than_the_memory_is_refused_before_it_is_made() -> None:
    with pytest.raises(UserError, match=r"num_blocks=2000000000 of 4 tokens: .* GiB are available: lower num_blocks"):
        build_engine(
            composed("model=tiny", "block_size=4", "num_blocks=2000000000", config_name="generate"), model(), True
        )
