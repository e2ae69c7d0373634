"""500 random mixes in a pool so small that preemption is constant: all finish, nothing leaks, the tokens are the same.

Each mix runs twice: with room for everything, no sharing and one request at a time; and starved, with random policies,
chunk sizes, swap space, sharing and copies of part of a block, now and then an abort, the books checked after every
step.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.conf import ONLINE_EVICTORS, build, options
from support.engines import fake_engine

from model.sampling import SamplingParams

MIXES, GROUPS = 500, 10


def drawn_params(draw: random.Random, index: int) -> SamplingParams:
    shape = draw.choice([{}, {}, {}, {"n": 2}, {"n": 3}, {"n": 1, "best_of": 2}, {"beam_width": 2}])
    return SamplingParams(
        max_tokens=draw.randrange(1, 14),
        temperature=draw.choice([0.0, 0.7]),
        seed=index,
        stop_token_ids=(3,) if draw.random() < 0.3 else (),
        prompt_logprobs=0 if draw.random() < 0.1 else None,
        repetition_penalty=draw.choice([1.0, 1.0, 1.3]),
        ignore_eos=True,
        **shape,  # type: ignore[arg-type]
    )


def drawn_prompt(draw: random.Random, bases: list[list[int]]) -> list[int]:
    base = draw.choice(bases)
    return base[: draw.randrange(len(base) + 1)] + [draw.randrange(40) for _ in range(draw.randrange(1, 4))]


def blocks_at_most(length: int, params: SamplingParams, block_size: int) -> int:
    """What a request may need although its branches share nothing but the prompt. The last token needs no slot."""
    branches = max(params.beam_width, params.best_of or params.n)
    return length // block_size + branches * -(-(length % block_size + params.max_tokens - 1) // block_size)


def starved_engine(draw: random.Random, num_blocks: int, block_size: int) -> Any:
    budget = draw.randrange(6, 24)
    policy = random.Random(draw.random())  # apart, so that one more policy changes nothing else of a mix
    allocator = policy.choice([{}, {"radix": True}, {"partial_reuse": True}])
    return fake_engine(
        num_blocks,
        block_size,
        caching=draw.random() < 0.75,
        host_blocks=draw.choice([None, 0, 3, 40]),
        order=build("order", policy.choice(options("order"))),
        victim=build("victim", policy.choice(options("victim"))),
        evictor=build("evictor", policy.choice(ONLINE_EVICTORS)),
        **allocator,
        watermark=draw.choice([0.0, 0.1, 0.4]),
        max_num_seqs=draw.randrange(4, budget + 1) if budget > 4 else budget,
        max_num_batched_tokens=budget,
        max_chunk_tokens=draw.choice([None, 1, 2, 5]),
        max_inflight_waits=draw.choice([0, 2, 64]),
    )


@pytest.mark.parametrize("group", range(GROUPS))
def test_starved_mixes_finish_leak_nothing_and_say_what_they_say_with_room_for_all(group: int) -> None:
    preemptions = swaps = recomputed = 0
    for mix in range(group, MIXES, GROUPS):
        draw = random.Random(mix)
        block_size = draw.randrange(1, 5)
        bases = [[draw.randrange(40) for _ in range(14)] for _ in range(2)]
        prompts = [drawn_prompt(draw, bases) for _ in range(draw.randrange(3, 9))]
        params = [drawn_params(draw, i) for i in range(len(prompts))]
        priorities = [draw.randrange(3) for _ in prompts]
        free = fake_engine(caching=False, block_size=block_size, max_num_seqs=4, max_num_batched_tokens=512)
        expected = [free.generate([p], s)[0] for p, s in zip(prompts, params, strict=True)]

        needs = [blocks_at_most(len(p), s, block_size) for p, s in zip(prompts, params, strict=True)]
        engine = starved_engine(draw, max(needs), block_size)
        requests = [engine.submit(*one) for one in zip(prompts, params, priorities, strict=True)]
        doomed = {draw.randrange(len(requests)): draw.randrange(30)} if draw.random() < 0.3 else {}
        for step in range(5000):
            for index, when in doomed.items():
                if step == when:
                    engine.abort(requests[index])
            engine.step()
            engine.scheduler.check_integrity()
            if not engine.scheduler.has_work:
                break
        else:
            pytest.fail(f"mix {mix} never ends")
        for i, (request, wanted) in enumerate(zip(requests, expected, strict=True)):
            result = engine.result(request)
            if i in doomed and result.completions[0].finish_reason == "abort":
                continue
            assert result.error is None, (mix, i, result.error)
            assert _spoken(result) == _spoken(wanted), (mix, i)
            preemptions += result.preemptions
            recomputed += result.recomputed_tokens
            swaps += request.swapped_in_tokens
        assert engine.scheduler.manager.allocator.num_in_use == 0, mix
        assert engine.scheduler.manager.num_live == 0, mix
        preemption = engine.scheduler.preemption
        assert getattr(preemption, "num_free", 0) == getattr(preemption, "num_host_blocks", 0), mix
    assert preemptions > 2 * MIXES // GROUPS, "the pool was not small enough to mean anything"
    assert recomputed > 0
    assert swaps > 0


def _spoken(result: Any) -> Any:
    return (
        [(c.token_ids, c.finish_reason) for c in result.completions],
        [(s.token_id, s.logprob) for s in result.prompt_logprobs],
    )
