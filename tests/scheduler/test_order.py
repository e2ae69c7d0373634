"""Which waiting request goes next, and that none waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
from support.crowd import LONG, ONE, finish, short
from support.engines import fake_engine

from scheduler.order.longest_prefix import LongestPrefix
from scheduler.order.priority import Priority
from scheduler.request import Request


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
