"""A step that was decided but not done (no memory, an interrupt): nothing of it is believed, the next one goes on."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.engines import fake_engine

from model.sampling import SamplingParams
from scheduler.step import Outcome, Step

TIGHT = {"num_blocks": 22, "max_num_seqs": 6, "max_num_batched_tokens": 14}


class Failing:
    """An executor that does some steps not at all, or all but their last part."""

    def __init__(self, inner: Any, fails: set[int], halfway: bool) -> None:
        self.inner, self.fails, self.halfway = inner, fails, halfway
        self.count = 0
        self.lost_moves = 0

    def execute(self, step: Step, until: float) -> Outcome:
        self.count += 1
        if self.count not in self.fails:
            outcome: Outcome = self.inner.execute(step, until)
            return outcome
        self.lost_moves += len(step.memory)
        if self.halfway:
            self.inner.execute(step, until)
        raise MemoryError("no room for the activations")


def asked() -> tuple[list[list[int]], list[SamplingParams]]:
    draw = random.Random(5)
    base = [draw.randrange(40) for _ in range(16)]
    prompts = [[*base[: draw.randrange(3, 16)], *(draw.randrange(40) for _ in range(3))] for _ in range(8)]
    shapes: list[dict[str, Any]] = [{}, {}, {"n": 2}, {"prompt_logprobs": 1}, {"temperature": 0.8}, {"beam_width": 2}]
    params = [SamplingParams(**{"max_tokens": 9, "temperature": 0, "seed": i, **shapes[i % 6]}) for i in range(8)]
    return prompts, params


def spoken(result: Any) -> Any:
    return [(c.token_ids, c.finish_reason) for c in result.completions], result.prompt_logprobs


@pytest.mark.parametrize("halfway", [False, True])
@pytest.mark.parametrize("cache", [{}, {"partial_reuse": True}, {"caching": False, "host_blocks": 30}])
def test_whichever_steps_fail_every_request_says_what_it_would_have_said(cache: Any, halfway: bool) -> None:
    prompts, params = asked()
    expected = [spoken(r) for r in fake_engine(caching=False).generate(prompts, params)]
    lost = 0
    for first in range(1, 30, 2):
        engine = fake_engine(**TIGHT, **cache)
        failing = Failing(engine.loop.executor, {first, first + 1, first + 7}, halfway)
        engine.loop.executor = failing
        requests = [engine.submit(*one) for one in zip(prompts, params, strict=True)]
        failures = 0
        while engine.scheduler.has_work:
            try:
                engine.step()
            except MemoryError:
                failures += 1
            engine.scheduler.check_integrity()
        assert failures == sum(number <= failing.count for number in failing.fails)
        assert [spoken(engine.result(request)) for request in requests] == expected
        assert engine.scheduler.manager.allocator.num_in_use == 0
        assert getattr(engine.scheduler.preemption, "num_free", 0) == cache.get("host_blocks", 0)
        lost += failing.lost_moves
    assert lost > 0, "no copy or swap was ever lost: the test shows nothing"


def test_a_generate_that_fails_tells_why_and_leaves_a_usable_engine() -> None:
    engine = fake_engine()
    engine.loop.executor = Failing(engine.loop.executor, {2}, halfway=False)
    params = SamplingParams(max_tokens=5, temperature=0)
    with pytest.raises(MemoryError, match="no room"):
        engine.generate([[1, 2, 3]], params)
    assert engine.scheduler.manager.allocator.num_in_use == 0
    assert engine.generate([[1, 2, 3]], params)[0].token_ids == fake_engine().generate([[1, 2, 3]], params)[0].token_ids
