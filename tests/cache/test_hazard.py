"""Our own policy: the arithmetic of its index, what it learns, and that LRU takes over where LRU is better."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conf import build
from support.replays import Prompt

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.evictor.contract import plain, replay
from cache.evictor.hazard import Hazard
from cache.evictor.hazard_curves import EDGES
from cache.evictor.hazard_model import HazardModel, Life, steepest_chords
from cache.evictor.histories import Histories
from cache.evictor.lru import Lru
from cache.evictor.rival import Rival, Visit
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.run import walk
from cache.sequence import Sequence
from cache.tokens import PackedTokens

PARAMETERS: dict[str, Any] = {
    "half_life": 1e4, "often": 8, "recent_gaps": 8, "evidence": 20.0, "rate": 0.3, "offset": 60.0,
}  # fmt: skip


def worth(model: HazardModel, life: Life, age: float) -> float:
    return model.worth(life)[bisect_right(EDGES, age)]


def test_the_worth_of_waiting_is_the_steepest_chord_found_by_trying_every_patience() -> None:
    draw = random.Random(1)
    for _ in range(50):
        hazards = [draw.expovariate(20.0) for _ in range(12)]
        widths = [draw.uniform(0.5, 9.0) for _ in hazards]
        best = steepest_chords(hazards, widths)
        for age in range(len(hazards)):
            rates, hits, seconds, alive = [], 0.0, 0.0, 1.0
            for hazard, width in zip(hazards[age:], widths[age:], strict=True):
                used = 1 - math.exp(-hazard * width)
                hits, seconds, alive = hits + alive * used, seconds + alive * used / hazard, alive * (1 - used)
                rates.append(hits / seconds)
            assert best[age] == pytest.approx(max(rates))


def test_a_kind_that_comes_back_after_a_minute_is_worth_most_just_before() -> None:
    model = HazardModel(evidence=1.0)
    one, two = model.life(("a", 1)), model.life(("a", 2))
    for _ in range(500):
        model.observe(one, 60.0, True)
        model.observe(two, 60.0, False)
    model.fit([], np.array([]), keep=1.0)
    assert worth(model, one, 50.0) > worth(model, one, 5.0) > worth(model, one, 400.0)
    assert worth(model, one, 50.0) > 5 * worth(model, two, 50.0)


@given(
    old=st.lists(st.floats(0, 1e6), max_size=20), new=st.lists(st.floats(0, 1e6), max_size=20), keep=st.floats(0.01, 1)
)
def test_what_is_forgotten_counts_less_by_as_much(old: list[float], new: list[float], keep: float) -> None:
    forgetful, told = HazardModel(), HazardModel()
    life, same = forgetful.life((60.0, None)), told.life((60.0, None))
    for age in old:
        forgetful.observe(life, age, True)
        same.ends[bisect_right(EDGES, age)] += keep
        same.uses[bisect_right(EDGES, age)] += keep
    forgetful.fit([life], np.array([3.0]), keep)
    for model, one in ((forgetful, life), (told, same)):
        for age in new:
            model.observe(one, age, True)
        model.fit([one], np.array([3.0]), 1.0)
    assert forgetful.worth(life) == pytest.approx(told.worth(same))


def test_without_evidence_a_kind_told_by_its_gap_is_worth_what_its_gap_says() -> None:
    model = HazardModel()
    lives = [model.life((gap, None)) for gap in (5.0, 50.0, 500.0)]
    model.fit(lives, np.array([1.0, 1.0, 1.0]), 1.0)
    for life, gap in zip(lives, (5.0, 50.0, 500.0), strict=True):
        assert worth(model, life, 0.0) == pytest.approx(2 / gap, rel=0.25)
    assert worth(model, lives[1], 10.0) > worth(model, lives[1], 1000.0)


def test_a_model_that_forgets_fast_for_ever_stays_finite() -> None:
    model = HazardModel()
    for i in range(400):
        life = model.life(("a", i % 3))
        model.observe(life, float(i % 90), i % 2 == 0)
        model.fit([life], np.array([float(i)]), keep=0.5)
        assert all(math.isfinite(value) and value > 0 for value in model.worth(life))
    assert len(model._lives) == 3


def test_a_kind_that_is_forgotten_and_that_nobody_waits_for_is_dropped() -> None:
    model = HazardModel()
    model.observe(model.life(("gone", 1)), 5.0, True)
    waits = model.life(("waits", 1))
    for _ in range(20):
        model.fit([waits], np.array([5.0]), keep=0.5)
    assert set(model._lives) == {("waits", 1)}


def test_without_evidence_the_order_is_that_of_lru() -> None:
    model = HazardModel()
    life = model.life(("any", None))
    found = [worth(model, life, age) for age in (0.0, 10.0, 100.0, 1000.0, 10_000.0)]
    assert found == sorted(found, reverse=True)


def test_the_shadow_lru_counts_what_a_real_one_hits() -> None:
    draw, rival, last, ours = random.Random(2), Rival(), dict[int, Visit](), 0
    held: list[int] = []
    for index in range(400):
        block, visit = int(draw.paretovariate(0.6)) % 40, Visit(index, 0.0, 0)
        rival.begun(visit, 10)
        ours += block in held
        if block in last:
            rival.wanted(last[block], 1, block in held)
        rival.touched(visit, 1)
        last[block] = visit
        held = [*[b for b in held if b != block][-9:], block]
    assert rival._lrus == rival._ours == ours > 50


def leads(rival: Rival, indices: range, resident: bool) -> float:
    """The share of these requests for which LRU leads; each wants again what the one before it used."""
    led, last = 0, Visit(-1, 0.0, 0)
    for index in indices:
        visit = Visit(index, 0.0, 0)
        rival.begun(visit, 100)
        if last.held:
            rival.wanted(last, 5, resident)
        rival.touched(visit, 10)
        rival.entered(5)
        rival.judge()
        led, last = led + rival.leads, visit
    return led / len(indices)


def test_lru_takes_over_from_a_policy_that_keeps_losing_and_gives_another_chance_to_one_that_no_longer_does() -> None:
    rival = Rival()
    assert leads(rival, range(50), False) == 0, "too early to tell"
    assert leads(rival, range(50, 5000), False) > 0.8
    leads(rival, range(5000, 5600), True)
    assert leads(rival, range(5600, 6600), True) == 0


def test_it_keeps_what_comes_back_later_than_lru_can_wait() -> None:
    """Three documents, asked every 20 requests, between questions that fill the pool within 12 and do not return."""
    prompts: list[Prompt] = [
        (i % 20, *range(5)) if i % 20 in (0, 7, 13) else (1000 + i, *range(4)) for i in range(1200)
    ]
    hazard, lru = (sum(h or 0 for h in replay(prompts, e, 60, describe=plain)) for e in (Hazard(), Lru()))
    assert lru == 0
    assert hazard > 0.5 * 5 * 180


def test_it_never_falls_far_below_lru_even_where_the_past_misleads() -> None:
    """The law changes every 150 requests: what was asked again is not, and the other way round."""
    prompts: list[Prompt] = []
    for i in range(3000):
        phase = i // 150
        document = i % 15 if (i % 15 < 8) ^ (phase % 2) else 100 + i
        prompts.append((phase // 2 * 1000 + document, *range(4)))
    rates = [sum(h or 0 for h in replay(prompts, e, 50, describe=plain)) / 15_000 for e in (Hazard(), Lru())]
    assert rates[0] > rates[1] - 0.005


@pytest.mark.parametrize(("num_blocks", "belady", "share"), [(1000, 26_438, 0.25), (10_000, 56_542, 0.15)])
def test_on_conversation_it_closes_the_promised_share_of_the_gap(
    num_blocks: int, belady: int, share: float, trace_of_conversation: Path | None
) -> None:
    """`belady`: hit blocks of the second half."""
    if trace_of_conversation is None:
        pytest.skip("PAGELAB_DATA names no folder with mooncake_conversation_trace.jsonl.gz")
    from experiments.tune import hits_by_part, split_at
    from experiments.workload.mooncake import Mooncake

    requests = list(Mooncake(str(trace_of_conversation)))
    border, later = split_at(requests, 0.5), {}
    for name in ("lru", "hazard"):
        manager = CacheManager(Radix(num_blocks, 512, BuiltinHash(), build("evictor", name)))
        later[name] = hits_by_part(requests, manager, border)[0][1]
    assert later["hazard"] - later["lru"] >= share * (belady - later["lru"])


def test_on_popular_prefixes_it_is_level_with_the_policies_made_for_them() -> None:
    from experiments.tune import hits_by_part
    from experiments.workload.zipf_system_prompts import ZipfSystemPrompts

    requests, hits = list(ZipfSystemPrompts(num_requests=3000)), {}
    for name in ("lru", "s3fifo", "hazard"):
        manager = CacheManager(Radix(2000, 16, BuiltinHash(), build("evictor", name)))
        hits[name] = sum(hits_by_part(requests, manager, 0)[0])
    assert hits["hazard"] - hits["lru"] > 0.95 * (hits["s3fifo"] - hits["lru"]) > 0


@pytest.fixture
def trace_of_conversation() -> Path | None:
    import os

    path = Path(os.environ.get("PAGELAB_DATA", "data")) / "mooncake_conversation_trace.jsonl.gz"
    return path if path.exists() else None


def test_requests_that_take_turns_are_as_many_as_they_are() -> None:
    """An engine serves many at once: events of one request come between those of others."""
    books = Histories(**PARAMETERS)
    for step in range(6):
        for index in range(40):
            access = Access(index, time=float(index), num_tokens=8 * (step + 1))
            keys = [(index, step)]
            books.entered(keys, step, access, books.pieces(keys))
    assert books._requests == 40
    assert {history.visit.num_runs for history in books._resident} == {1}, "growing is no new turn"
    assert sorted(history.size for history in books._resident) == [6] * 40


def test_a_request_that_grows_block_by_block_is_one_run_of_the_tree() -> None:
    manager = CacheManager(Radix(64, 4, BuiltinHash(), Hazard()))
    seq = Sequence(PackedTokens.of(range(10)), Access(0))
    manager.allocate(seq)
    for token in range(10, 100):
        manager.append(seq, [token])
        manager.promote_to_immutable(seq, token + 1)
    assert [len(run.blocks) for run in walk(manager.allocator._roots)] == [25]  # type: ignore[attr-defined]


def test_what_the_shadow_lru_remembers_is_bounded_however_long_all_hit() -> None:
    evictor, rival = Hazard(), None
    hits = replay([(i % 3, *range(4)) for i in range(3000)], evictor, 60, describe=plain)
    rival = evictor._histories._rival
    assert sum(h or 0 for h in hits) > 10_000
    assert len(rival._held) <= 15


@pytest.mark.parametrize("pool", [500, 2500])
def test_runs_are_evicted_as_blocks_are_on_real_traffic(pool: int, trace_of_conversation: Path | None) -> None:
    if trace_of_conversation is None:
        pytest.skip("PAGELAB_DATA names no folder with mooncake_conversation_trace.jsonl.gz")
    from experiments.replay import access_of
    from experiments.workload.mooncake import Mooncake

    managers = [CacheManager(kind(pool, 512, BuiltinHash(), Hazard())) for kind in (Radix, HashChain)]
    for index, request in enumerate(Mooncake(str(trace_of_conversation), limit=1200)):
        hits = []
        for manager in managers:
            seq = Sequence(request.tokens, access_of(request, index))
            manager.allocate(seq)
            manager.promote_to_immutable(seq, seq.num_tokens)
            hits.append(seq.block_table)
            manager.free(seq)
        assert hits[0] == hits[1], index
