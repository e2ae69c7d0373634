"""An engine over the fake model: what it says depends on the request alone, and what it reports is what happened."""

from __future__ import annotations

import random
from typing import Any

from support.engines import fake_engine

from model.sampling import SamplingParams

GREEDY = SamplingParams(max_tokens=20, temperature=0)


def prompts(count: int, seed: int = 0, longest: int = 40) -> list[list[int]]:
    """Random prompts, most of which continue one of two long ones."""
    draw = random.Random(seed)
    bases = [[draw.randrange(40) for _ in range(longest)] for _ in range(2)]
    return [
        draw.choice(bases)[: draw.randrange(longest)] + [draw.randrange(40) for _ in range(draw.randrange(1, 8))]
        for _ in range(count)
    ]


def said(engine: Any, asked: Any, params: Any) -> list[Any]:
    results = engine.generate(asked, params)
    engine.scheduler.check_integrity()
    assert engine.scheduler.manager.allocator.num_in_use == 0
    return [[(c.token_ids, c.finish_reason) for c in result.completions] for result in results]


def test_a_request_says_the_same_alone_in_a_batch_chunked_cached_or_not() -> None:
    asked = prompts(12)
    alone = [said(fake_engine(caching=False), [prompt], GREEDY)[0] for prompt in asked]
    assert said(fake_engine(), asked, GREEDY) == alone
    assert said(fake_engine(caching=False), asked, GREEDY) == alone
    warm = fake_engine()
    assert said(warm, asked, GREEDY) == said(warm, asked, GREEDY) == alone
    for chunk in range(1, 12):
        assert said(fake_engine(max_chunk_tokens=chunk), asked, GREEDY) == alone, chunk
        assert said(fake_engine(max_num_batched_tokens=chunk + 3, max_num_seqs=4), asked, GREEDY) == alone, chunk


def test_a_seeded_sample_says_the_same_in_any_company() -> None:
    params = [SamplingParams(max_tokens=9, temperature=0.8, seed=i) for i in range(8)]
    asked = prompts(8, seed=1)
    together = said(fake_engine(), asked, params)
    assert together == [said(fake_engine(), [p], s)[0] for p, s in zip(asked, params, strict=True)]
    assert (
        said(fake_engine(), asked, [SamplingParams(max_tokens=9, temperature=0.8, seed=i + 1) for i in range(8)])
        != together
    )
