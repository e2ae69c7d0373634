"""What a step may cost, and that thousands of them leave nothing behind."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support.crowd import LONG, short
from support.engines import fake_engine

from model.sampling import Sampled, SamplingParams
from scheduler.step import Outcome


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
