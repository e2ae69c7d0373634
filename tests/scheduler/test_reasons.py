"""The ledger on a served workload: every request knows why its blocks hit or missed, and the sums are the ledger's."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.crowd import LONG, ONE
from support.engines import fake_engine

from cache.errors import CacheInUse
from cache.extra_keys import ExtraKeys
from cache.ledger import Ledger
from model.sampling import SamplingParams


def observed(**options: Any) -> tuple[Any, Ledger]:
    engine, ledger = fake_engine(**options), Ledger(4)
    engine.observe(ledger)
    return engine, ledger


def reasons(engine: Any, prompt: list[int], **options: Any) -> Any:
    return engine.generate([prompt], ONE, **options)[0].reasons


@pytest.mark.parametrize("radix", [False, True])
def test_each_reason_is_told_to_the_request_whose_block_it_is(radix: bool) -> None:
    engine, _ = observed(num_blocks=12, radix=radix)
    assert reasons(engine, LONG) == {"first_seen": 8}
    assert reasons(engine, LONG) == {"hit": 7, "last_token": 1}
    assert reasons(engine, [*LONG[:10], *[39] * 6]) == {"hit": 2, "short_share": 1, "first_seen": 1}
    assert reasons(engine, LONG[:8], extra_keys=ExtraKeys(tenant="b")) == {"key_differs": 2}
    assert reasons(engine, list(range(100, 108))) is None, "out of range: never looked up"
    assert reasons(engine, [38] * 40) == {"first_seen": 10}
    assert reasons(engine, LONG) == {"evicted": 7, "last_token": 1}
    engine.scheduler.manager.reset()
    assert reasons(engine, LONG[:9]) == {"reset": 2}


@pytest.mark.parametrize("radix", [False, True])
def test_the_sums_over_a_preempting_run_are_the_ledgers_and_hits_are_the_hit_tokens(radix: bool) -> None:
    engine, ledger = observed(num_blocks=14, radix=radix, max_num_seqs=6)
    prompts = [[*LONG[: 3 * i], i, i] for i in range(9)]
    results = engine.generate(prompts, SamplingParams(max_tokens=12, temperature=0, n=1))
    assert sum(r.preemptions for r in results) > 0
    total: Counter[str] = Counter()
    for prompt, result in zip(prompts, results, strict=True):
        assert sum(result.reasons.values()) == len(prompt) // 4, "one reason per full block, once"
        assert result.reasons.get("hit", 0) * 4 == result.hit_tokens
        total.update(result.reasons)
    assert total == +ledger.counts
    assert ledger.repeated.total() > 0, "lookups after a preemption are kept apart"


def test_a_ledger_must_see_everything_from_the_start() -> None:
    engine = fake_engine()
    engine.generate([LONG], ONE)
    with pytest.raises(CacheInUse, match="from the start"):
        engine.observe(Ledger(4))
    engine.scheduler.manager.reset()
    engine.observe(Ledger(4))


def test_reasons_of_a_ledger_are_taken_at_first_admission() -> None:
    engine = fake_engine(explain=lambda seq: {"hit": seq.num_hit_blocks, "missed": 8 - seq.num_hit_blocks})
    assert engine.generate([LONG], ONE)[0].reasons == {"hit": 0, "missed": 8}
    assert engine.generate([LONG], ONE)[0].reasons == {"hit": 7, "missed": 1}
