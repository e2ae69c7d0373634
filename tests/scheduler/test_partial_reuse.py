"""`partial_reuse` in the engine: what is copied from the middle of a block is not computed, and changes no token.

The fake model reads what it predicts from through the slots, so a copy that is lost, late or of the wrong block shows.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.engines import fake_engine

from model.sampling import SamplingParams
from scheduler.step import Step

FOUR = SamplingParams(max_tokens=4, temperature=0)
LONG = list(range(32))


def rows(engine: Any) -> int:
    return int(engine.loop.executor.executor.runner.num_rows)


def test_tokens_copied_from_a_shared_block_are_not_computed_and_are_counted_apart_from_hits() -> None:
    asked = [*LONG[:18], 39, 38, 37]
    engine = fake_engine(partial_reuse=True)
    engine.generate([LONG], FOUR)
    before = rows(engine)
    result = engine.generate([asked], FOUR)[0]
    assert (result.hit_tokens, result.partial_hit_tokens) == (16, 2)
    assert rows(engine) - before == len(asked) - 18 + 3
    assert result.token_ids == fake_engine(caching=False).generate([asked], FOUR)[0].token_ids


def test_a_copy_from_a_block_that_the_next_copy_overwrites_happens_first() -> None:
    step = Step(0)
    step.move("copy", [(1, 2)])
    step.move("copy", [(3, 4)])
    step.move("copy", [(5, 1)])
    step.move("copy", [(6, 7)])
    assert step.memory == [("copy", [(1, 2), (3, 4)]), ("copy", [(5, 1), (6, 7)])]


def test_a_request_may_copy_into_the_block_that_another_of_the_same_step_copies_from() -> None:
    one = SamplingParams(max_tokens=1, temperature=0)
    engine = fake_engine(3, partial_reuse=True)
    engine.generate([[1, 2, 3, 4]], one)
    engine.generate([[5, 6, 7, 8]], one)
    engine.loop.executor.steps.clear()
    asked = [[1, 2, 39], [5, 6, 39]]  # the first takes the last free block, the second the first one's source
    told = engine.generate(asked, one)
    (step,) = engine.loop.executor.steps
    assert step.memory == [("copy", [(0, 2)]), ("copy", [(1, 0)])]
    assert [r.token_ids for r in told] == [r.token_ids for r in fake_engine(caching=False).generate(asked, one)]


@pytest.mark.parametrize("host_blocks", [None, 40])
def test_preempted_requests_come_back_over_partial_blocks_and_say_the_same(host_blocks: int | None) -> None:
    draw = random.Random(1)
    base = [draw.randrange(40) for _ in range(20)]
    prompts = [[*base[: draw.randrange(2, 20)], i] for i in range(8)]
    long = SamplingParams(max_tokens=15, temperature=0)
    engine = fake_engine(16, partial_reuse=True, host_blocks=host_blocks, max_num_seqs=6)
    told = engine.generate(prompts, long)
    plain = fake_engine(caching=False).generate(prompts, long)
    assert [r.token_ids for r in told] == [r.token_ids for r in plain]
    assert sum(r.preemptions for r in told) > 0
    assert sum(r.partial_hit_tokens for r in told) > 0
