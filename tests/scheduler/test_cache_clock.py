"""The cache's clock ticks when a request is let in, whoever came first and however often it is let in."""

from __future__ import annotations

import random

import pytest
from support.crowd import ONE, finish, short
from support.engines import fake_engine

from cache.ledger import Ledger
from scheduler.order.longest_prefix import LongestPrefix
from scheduler.order.priority import Priority


def test_what_was_let_in_last_stays_although_it_arrived_first() -> None:
    engine = fake_engine(num_blocks=4, order=Priority(), max_num_seqs=1)
    size = engine.scheduler.manager.block_size
    early, late, third = ([symbol] * (size + 1) for symbol in (1, 2, 3))
    engine.submit(early, ONE, priority=0)
    engine.submit(late, ONE, priority=1)
    finish(engine)
    engine.submit([*third, *third[:-1]], ONE)  # as large as the pool but for one block
    finish(engine)
    again = [engine.submit(prompt, ONE) for prompt in (early, late)]
    finish(engine)
    assert [request.hit_tokens for request in again] == [size, 0]


@pytest.mark.parametrize("order", [Priority(), LongestPrefix(4.0)], ids=["priority", "longest_prefix"])
def test_no_block_is_younger_than_nothing_and_reasons_stay_with_their_requests(order: object) -> None:
    draw = random.Random(5)
    engine = fake_engine(num_blocks=14, order=order, max_num_seqs=4)
    ledger = Ledger(engine.scheduler.manager.block_size, full=True)
    engine.scheduler.observe(ledger)
    requests = []
    for _ in range(150):
        prompt = [draw.randrange(2)] * draw.randrange(1, 14) + [draw.randrange(3) for _ in range(6)]
        requests.append(engine.submit(prompt, short(draw.randint(1, 20)), priority=draw.randrange(4)))
        if draw.random() < 0.4:
            engine.step()
    finish(engine)
    assert engine.scheduler.num_preemptions > 3
    assert ledger.rows is not None
    for ages in (ledger.at_hit, ledger.at_eviction, ledger.at_miss):
        assert min(min(index, seconds) for index, seconds, _ in ages) >= 0
    assert set(ledger.rows.request) <= {request.index for request in requests}
    assert sum(sum((request.reasons or {}).values()) for request in requests) == sum(ledger.counts.values())
    assert sum(ledger.repeated.values()) > 0
