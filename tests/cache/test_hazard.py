"""Our own policy: the arithmetic of its index, what it learns, and that LRU takes over where LRU is better."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from support.conf import build
from support.replays import Prompt

from cache.evictor.contract import plain, replay
from cache.evictor.hazard import Hazard
from cache.evictor.hazard_model import HazardModel, steepest_chords
from cache.evictor.lru import Lru
from cache.evictor.rival import Rival, Visit


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
    for _ in range(500):
        model.observe(("a", 1), 60.0, True)
        model.observe(("a", 2), 60.0, False)
    model.fit([], keep=1.0)
    assert model.worth(("a", 1), 50.0) > model.worth(("a", 1), 5.0) > model.worth(("a", 1), 400.0)
    assert model.worth(("a", 1), 50.0) > 5 * model.worth(("a", 2), 50.0)


def test_without_evidence_the_order_is_that_of_lru() -> None:
    model = HazardModel()
    worth = [model.worth(("any", None), age) for age in (0.0, 10.0, 100.0, 1000.0, 10_000.0)]
    assert worth == sorted(worth, reverse=True)


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


def test_on_conversation_it_closes_the_promised_share_of_the_gap(trace_of_conversation: Path | None) -> None:
    if trace_of_conversation is None:
        pytest.skip("PAGELAB_DATA names no folder with mooncake_conversation_trace.jsonl.gz")
    from cache.allocator.hash_chain import HashChain
    from cache.hashing.builtin import BuiltinHash
    from cache.manager import CacheManager
    from cache.sequence import Sequence
    from experiments.replay import access_of
    from experiments.workload.mooncake import Mooncake

    requests = list(Mooncake(str(trace_of_conversation)))
    middle = requests[-1].arrival / 2
    later = {}
    for name in ("lru", "hazard"):
        manager, later[name] = CacheManager(HashChain(1000, 512, BuiltinHash(), build("evictor", name))), 0
        for index, request in enumerate(requests):
            seq = Sequence(request.tokens, access_of(request, index))
            if manager.fits(seq):
                manager.allocate(seq)
                later[name] += seq.num_hit_blocks if request.arrival >= middle else 0
                manager.promote_to_immutable(seq, seq.num_tokens)
                manager.free(seq)
    belady = 26_438
    assert later["hazard"] - later["lru"] >= 0.25 * (belady - later["lru"])


@pytest.fixture
def trace_of_conversation() -> Path | None:
    import os

    path = Path(os.environ.get("PAGELAB_DATA", "data")) / "mooncake_conversation_trace.jsonl.gz"
    return path if path.exists() else None
