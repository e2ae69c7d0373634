"""New weights and adapters under running, waiting and swapped requests."""

from __future__ import annotations

from typing import Any

import pytest
from support.crowd import LONG, ONE, crowded, finish, short
from support.engines import fake_engine

from cache.errors import CacheInUse
from scheduler.request import State


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
