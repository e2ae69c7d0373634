"""Who runs when, what is matched, shared, waited for, given up and brought back."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support.engines import fake_engine

from cache.errors import CacheInUse
from cache.evictor.lru import Lru
from cache.extra_keys import ExtraKeys
from model.sampling import Sampled, SamplingParams
from scheduler.order.longest_prefix import LongestPrefix
from scheduler.order.priority import Priority
from scheduler.request import Request, State
from scheduler.step import Outcome
from scheduler.victim.cheapest_recompute import CheapestRecompute
from scheduler.victim.last import Last

ONE = SamplingParams(max_tokens=1, temperature=0)
LONG = list(range(32))


def short(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0)


def finish(engine: Any) -> None:
    while engine.scheduler.has_work:
        engine.step()
        engine.scheduler.check_integrity()


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


# Order


def order_of_first_tokens(engine: Any, requests: list[Request]) -> list[int]:
    finish(engine)
    return sorted(range(len(requests)), key=lambda i: (requests[i].first_token_at, i))


def test_priority_goes_before_arrival() -> None:
    engine = fake_engine(order=Priority(), max_num_seqs=1)
    requests = [engine.submit([i, 1, 2], short(2), priority=p) for i, p in enumerate([0, 2, 1, 2])]
    assert order_of_first_tokens(engine, requests) == [1, 3, 2, 0]


def test_the_longest_cached_prefix_goes_first_until_another_has_waited_long_enough() -> None:
    def served(tokens_per_second: float, wait: float) -> list[int]:
        engine = fake_engine(order=LongestPrefix(tokens_per_second), max_num_seqs=1)
        engine.generate([LONG], ONE)
        cold = engine.submit([9, 9, 9, 9], short(2))
        engine.clock.advance(wait)
        hot = engine.submit([*LONG, 1], short(2))
        return order_of_first_tokens(engine, [cold, hot])

    assert served(1.0, 10.0) == [1, 0]
    assert served(1.0, 31.0) == [1, 0]
    assert served(1.0, 33.0) == [0, 1], "32 cached tokens are worth 32 seconds"
    assert served(100.0, 1.0) == [0, 1]


def test_with_ageing_a_cold_request_is_served_in_bounded_time_however_many_hot_ones_come() -> None:
    engine = fake_engine(order=LongestPrefix(4.0), max_num_seqs=1)
    engine.generate([LONG], ONE)
    cold = engine.submit([9] * 5, ONE)
    for i in range(60):
        engine.submit([*LONG, i % 40], ONE)
        engine.step()
    assert cold.first_token_at is not None
    assert cold.first_token_at - cold.arrival <= 32 / 4.0 + 2
    finish(engine)


@pytest.mark.parametrize("options", [{"tokens_per_second": 0.0}, {"window": 0}])
def test_an_order_that_could_starve_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"order\."):
        LongestPrefix(**options)


# Preemption


def crowded(**options: Any) -> tuple[Any, list[Request]]:
    """Three requests of 8, 12 and 4 prompt tokens that outgrow a pool of 9 blocks."""
    engine = fake_engine(9, caching=options.pop("caching", False), max_num_seqs=4, **options)
    lengths = (8, 12, 4)
    return engine, [engine.submit([i] * length, short(20)) for i, length in enumerate(lengths)]


def test_the_last_in_line_goes_first_and_the_first_in_line_never() -> None:
    engine, requests = crowded(victim=Last())
    finish(engine)
    assert requests[0].preemptions == 0
    assert requests[2].preemptions > 0
    assert all(request.error is None for request in requests)


def test_the_cheapest_victim_is_the_one_with_the_fewest_lost_tokens_per_block() -> None:
    engine, requests = crowded(victim=CheapestRecompute())
    victim, manager = engine.scheduler.victim, engine.scheduler.manager
    engine.step()
    assert victim.choose(requests[1:], manager) is requests[2], "equal share of its blocks is filled, but it is last"
    engine.step()
    # 13 tokens in 4 blocks beside 5 tokens in 2 blocks, of which the newest is not computed yet
    assert victim.choose(requests[1:], manager) is requests[2]
    assert victim.choose(requests[:2], manager) is requests[0], "8 computed tokens in 3 blocks beside 12 in 4"
    finish(engine)
    assert requests[0].preemptions == 0


def test_a_victim_that_frees_nothing_is_the_last_choice() -> None:
    engine = fake_engine(64, victim=CheapestRecompute())
    engine.generate([LONG], ONE)
    owners = [engine.submit(LONG, short(8)) for _ in range(2)]
    engine.step()
    sequences = [owner.branches[0].seq for owner in owners]
    twin = engine.scheduler.manager.fork(sequences[0])
    assert engine.scheduler.victim.choose(owners, engine.scheduler.manager) is owners[1]
    engine.scheduler.manager.free(twin)
    finish(engine)


def test_recomputed_tokens_are_told_apart_from_prefix_hits() -> None:
    engine, requests = crowded(caching=True)
    finish(engine)
    victim = max(requests, key=lambda request: request.preemptions)
    assert victim.preemptions > 0
    assert victim.hit_tokens == 0
    assert victim.rehit_tokens + victim.recomputed_tokens > 0
    rows = engine.loop.executor.executor.runner.num_rows
    useful = sum(len(r.prompt) + r.num_outputs - 1 for r in requests)
    assert rows == useful + sum(r.recomputed_tokens for r in requests), "every row is useful or counted as lost"


def test_a_swapped_request_comes_back_with_its_blocks_and_computes_nothing_twice() -> None:
    engine, requests = crowded(host_blocks=20)
    finish(engine)
    assert sum(r.preemptions for r in requests) > 0
    assert sum(r.swapped_in_tokens for r in requests) > 0
    assert sum(r.recomputed_tokens for r in requests) == 0
    assert engine.scheduler.preemption.num_free == 20


def test_without_room_on_the_host_a_request_is_recomputed() -> None:
    engine, requests = crowded(host_blocks=1)
    finish(engine)
    assert sum(r.recomputed_tokens for r in requests) > 0
    assert sum(r.swapped_in_tokens for r in requests) == 0


# Weights and adapters


def test_after_a_weight_reload_nothing_old_is_read_by_anyone() -> None:
    """Running, waiting and swapped requests go on as if their tokens so far had been given to the new model."""
    for host_blocks in (None, 20):
        engine, requests = crowded(caching=True, host_blocks=host_blocks)
        runner = engine.loop.executor.executor.runner
        for _ in range(14):
            engine.step()
        known = [list(request.branches[0].outputs) for request in requests]
        assert any(request.state is not State.RUNNING for request in requests)

        def load(runner: Any = runner) -> str:
            runner.weights = 2
            return "two"

        engine.reload_weights(load)
        finish(engine)
        for i, request in enumerate(requests):
            fresh = fake_engine()
            fresh.loop.executor.executor.runner.weights = 2
            prompt = [i] * len(request.prompt) + known[i]
            rest = fresh.generate([prompt], short(20 - len(known[i])))[0].token_ids
            assert tuple(request.branches[0].outputs) == (*known[i], *rest)
        assert [engine.generate([[5] * 8], ONE)[0].hit_tokens for _ in range(2)] == [0, 4], "caching goes on"


def test_the_same_weights_again_invalidate_nothing() -> None:
    engine = fake_engine()
    engine.generate([LONG], ONE)
    engine.reload_weights(lambda: engine.scheduler.manager.weights_version)
    assert engine.generate([LONG], ONE)[0].hit_tokens == 28


def test_an_adapter_switch_invalidates_exactly_what_it_must() -> None:
    engine = fake_engine()
    runner = engine.loop.executor.executor.runner

    def switch(weights: int) -> Any:
        return lambda: setattr(runner, "weights", weights)

    def hit(name: str | None, version: str | None, weights: int) -> int:
        engine.switch_adapter(switch(weights), name, version)
        return int(engine.generate([LONG], ONE)[0].hit_tokens)

    assert hit(None, None, 1) == 0
    assert hit("poet", "1", 7) == 0
    assert hit(None, None, 1) == 28, "the base model's blocks outlived the adapter"
    assert hit("poet", "1", 7) == 28
    assert hit("poet", "2", 8) == 0, "same name, new content"
    request = engine.submit(LONG, short(4))
    with pytest.raises(CacheInUse, match="finish or abort"):
        engine.switch_adapter(switch(1), None)
    engine.abort(request)
    engine.switch_adapter(switch(1), None)


def test_reasons_of_a_ledger_are_taken_at_first_admission() -> None:
    engine = fake_engine(explain=lambda seq: {"hit": seq.num_hit_blocks, "missed": 8 - seq.num_hit_blocks})
    assert engine.generate([LONG], ONE)[0].reasons == {"hit": 0, "missed": 8}
    assert engine.generate([LONG], ONE)[0].reasons == {"hit": 7, "missed": 1}


def test_a_decode_step_touches_no_more_of_a_long_context_than_of_a_short_one() -> None:
    """Function calls of one step, counted: they must not grow with the context."""

    def calls(length: int) -> int:
        engine = fake_engine(4096, block_size=16, max_model_len=20000, max_num_batched_tokens=40000)
        scheduler, counted = engine.scheduler, 0
        requests = [engine.submit([i + 1, *[0] * length], short(40)) for i in range(4)]

        def count(*_: Any) -> None:
            nonlocal counted
            counted += 1

        for number in range(34):
            sys.setprofile(count if number else None)  # the first step is the prefill
            step = scheduler.schedule(0.0)
            drawn = [Sampled(1, 0.0)] * (4 if step.decodes else len(step.chunks))
            scheduler.commit(step, Outcome(drawn), 0.0)
            sys.setprofile(None)
        assert all(len(request.branches[0].outputs) == 34 for request in requests)
        return counted

    assert calls(16 * 500) == calls(16 * 2)


def test_blocks_that_were_to_be_swapped_in_by_a_step_that_failed_are_never_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, requests = crowded(caching=True, host_blocks=20, evictor=Lru())
    scheduler, executor = engine.scheduler, engine.loop.executor.executor
    while True:
        step = scheduler.schedule(0.0)
        if any(kind == "in" for kind, _ in step.memory):
            break  # and now nothing is moved or computed
        scheduler.commit(step, executor.execute(step, 0.0), 0.0)
    for request in requests:
        engine.abort(request)
    for i, request in enumerate(requests):
        known = [i] * len(request.prompt) + request.branches[0].outputs.tolist()
        again = engine.generate([known], ONE)[0]
        assert again.token_ids == fake_engine().generate([known], ONE)[0].token_ids
        engine.scheduler.check_integrity()


def test_a_soak_of_2000_requests_returns_to_where_it_began() -> None:
    engine = fake_engine(10, max_num_seqs=6, max_num_batched_tokens=24, host_blocks=10)
    scheduler = engine.scheduler
    for i in range(2000):
        engine.submit([i % 7] * (i % 11 + 1), short(i % 13 + 1))
        if i % 50 == 49:
            while scheduler.has_work:
                step = scheduler.schedule(0.0)
                drawn = [Sampled(1, 0.0) for chunk in step.chunks for _ in chunk.samples]
                scheduler.commit(step, Outcome([*drawn, *[Sampled(2, 0.0)] * len(step.decodes)]), 0.0)
            scheduler.check_integrity()
    assert len(scheduler.take_finished()) == 2000
    assert scheduler.num_preemptions > 0
    running, decoding = scheduler.running, scheduler.running.decoding
    left = (
        running.requests,
        running.prefilling,
        running.growing,
        decoding.members,
        decoding._epochs,
        scheduler.waiting,
    )
    assert [len(held) for held in left] == [0] * 6  # type: ignore[arg-type]
    assert len(decoding._calendar) <= 13, "entries of those who left early are gone once their time has come"
    assert scheduler.manager.allocator.num_in_use == 0
    assert scheduler.preemption.num_free == 10


@pytest.mark.parametrize("radix", [False, True])
def test_no_step_walks_the_pool_to_count_owners_and_the_fast_count_is_right(
    radix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fake_engine(14, radix=radix, max_num_seqs=6, max_num_batched_tokens=64)
    manager, allocator = engine.scheduler.manager, engine.scheduler.manager.allocator
    shapes: list[dict[str, Any]] = [{"n": 3}, {"beam_width": 2}, {}]
    for i in range(9):
        engine.submit(LONG[: 3 + i], SamplingParams(max_tokens=9, temperature=0.9, seed=i, **shapes[i % 3]))
    counted = 0
    while engine.scheduler.has_work:
        with monkeypatch.context() as patch:
            if radix:
                patch.setattr(allocator, "_snapshot", None)
            engine.step()
        for seq in manager.live_sequences:
            shared = seq.num_tokens % 4 and allocator.ref_count(seq.block_table[-1])
            assert manager.num_tail_owners(seq) == shared
            counted += shared > 1
    assert counted, "no tail was ever shared"
