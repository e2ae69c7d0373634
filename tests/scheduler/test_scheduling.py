"""What is matched, how much a step takes on, and who waits for a prefix that is being computed."""

from __future__ import annotations

import pytest
from support.crowd import LONG, ONE, finish, short
from support.engines import fake_engine

from cache.extra_keys import ExtraKeys
from scheduler.request import State

# Matching


def test_a_cached_prefix_longer_than_a_chunk_is_reused_as_a_whole() -> None:
    engine = fake_engine(max_num_batched_tokens=8, max_num_seqs=4)
    engine.generate([LONG], ONE)
    before = engine.loop.executor.executor.runner.num_rows
    assert engine.generate([[*LONG, 1, 2]], ONE)[0].hit_tokens == 32
    assert engine.loop.executor.executor.runner.num_rows - before == 2, "only what was not cached is computed"


def test_a_prompt_that_is_cached_as_a_whole_still_yields_its_first_token() -> None:
    engine = fake_engine()
    first, second = engine.generate([LONG], ONE)[0], engine.generate([LONG], ONE)[0]
    assert second.hit_tokens == 28
    assert second.token_ids == first.token_ids
    blocks = engine.scheduler.manager.allocator.num_idle
    engine.generate([LONG], ONE)
    assert engine.scheduler.manager.allocator.num_idle == blocks, "the last block is cached once"


def test_what_an_answer_computed_is_found_by_the_next_turn() -> None:
    engine = fake_engine()
    answer = engine.generate([LONG], short(9))[0].token_ids
    follow_up = engine.generate([[*LONG, *answer, 3]], ONE)[0]
    assert follow_up.hit_tokens == 40, "the last of nine tokens was never computed, so ten blocks are full"


def test_nothing_is_shared_across_tenants() -> None:
    engine = fake_engine()
    for tenant, hit in (("a", 0), ("b", 0), ("a", 28), ("b", 28)):
        assert engine.generate([LONG], ONE, extra_keys=ExtraKeys(tenant=tenant))[0].hit_tokens == hit


# Budget


@pytest.mark.parametrize("budget", [4, 7, 16])
def test_no_step_computes_more_than_the_budget_and_decodes_come_first(budget: int) -> None:
    engine = fake_engine(max_num_batched_tokens=budget, max_num_seqs=4)
    engine.generate([LONG[i:] for i in range(8)], short(12))
    for step in engine.loop.executor.steps:
        assert step.work().num_tokens <= budget
        assert len(step.decodes) + len(step.chunks) <= 4
    mixed = [step for step in engine.loop.executor.steps if step.chunks and step.decodes]
    assert mixed, "prefill and decode share steps"


def test_a_budget_below_the_number_of_sequences_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_num_batched_tokens=3 is less than scheduler\.max_num_seqs=4"):
        fake_engine(max_num_batched_tokens=3, max_num_seqs=4)


def test_the_watermark_is_kept_for_running_requests_but_never_blocks_a_lone_one() -> None:
    engine = fake_engine(10, watermark=0.4)
    lone = engine.submit(list(range(36)), short(2))
    engine.step()
    assert lone.state is State.RUNNING
    finish(engine)
    first = engine.submit(list(range(12)), short(8))
    second = engine.submit(list(range(20, 36)), ONE)
    engine.step()
    assert first.state is State.RUNNING
    assert second.state is State.WAITING, "3 of 10 are used, 4 more would leave 3, which is less than the 4 kept"
    finish(engine)
    assert second.error is None


# Standing back


def test_a_request_waits_for_a_prefix_that_is_just_being_computed_and_then_hits() -> None:
    engine = fake_engine(max_num_batched_tokens=16, max_num_seqs=4)
    first = engine.submit(LONG, short(4))
    engine.step()
    second = engine.submit([*LONG[:30], 7, 7, 7], short(4))
    other = engine.submit([9, 9, 9], short(4))
    engine.step()
    assert second.state is State.WAITING
    assert other.state is State.WAITING, "the budget of the round went to the first"
    engine.step()
    assert other.first_token_at is not None
    finish(engine)
    assert (first.hit_tokens, second.hit_tokens, other.hit_tokens) == (0, 28, 0)


def test_those_behind_one_that_stands_back_are_served() -> None:
    engine = fake_engine(max_num_batched_tokens=20, max_num_seqs=4, max_chunk_tokens=8)
    engine.submit(LONG, short(4))
    second = engine.submit([*LONG, 7], short(4))
    other = engine.submit([9, 9, 9], short(4))
    engine.step()
    assert (second.state, other.state) == (State.WAITING, State.RUNNING)
    finish(engine)
    assert second.hit_tokens == 32


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_standing_back_is_bounded(bound: int) -> None:
    engine = fake_engine(max_num_batched_tokens=64, max_num_seqs=4, max_chunk_tokens=1, max_inflight_waits=bound)
    engine.submit(LONG, short(4))
    second = engine.submit([*LONG, 7], short(4))
    for _ in range(bound):
        engine.step()
        assert second.state is State.WAITING
    engine.step()
    assert second.state is State.RUNNING
    assert second.inflight_waits == bound
    finish(engine)


def test_nobody_stands_back_for_a_prefix_under_another_key_or_for_a_cached_one() -> None:
    engine = fake_engine(max_chunk_tokens=8)
    engine.generate([LONG[:16]], ONE)
    engine.submit(LONG, short(4))
    cached = engine.submit(LONG[:15], short(4))
    foreign = engine.submit([*LONG, 7], short(4), extra_keys=ExtraKeys(tenant="b"))
    engine.step()
    assert (cached.state, foreign.state) == (State.RUNNING, State.RUNNING)
    finish(engine)
