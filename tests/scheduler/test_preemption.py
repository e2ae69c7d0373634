"""Who gives way under pressure, what that costs, and how they come back."""

from __future__ import annotations

import pytest
from support.crowd import LONG, ONE, crowded, finish, short
from support.engines import fake_engine

from cache.evictor.lru import Lru
from scheduler.victim.cheapest_recompute import CheapestRecompute
from scheduler.victim.last import Last


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
