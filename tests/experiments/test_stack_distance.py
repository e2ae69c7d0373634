"""The one-pass LRU curve against a replay of every single pool size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conf import build
from support.replays import Prompt, drawn_prompts, replayed

from cache.tokens import PackedTokens
from experiments.stack_distance import LruCurve

PROMPTS = st.lists(
    st.builds(
        lambda base, length, tail: tuple(base[:length] + tail),
        st.sampled_from([[0] * 12, [0, 1] * 6, [0, 0, 1] * 4]),
        st.integers(1, 12),
        st.lists(st.integers(0, 2), max_size=3),
    ),
    min_size=1,
    max_size=30,
)


def curve(prompts: list[Prompt], size: int) -> LruCurve:
    made = LruCurve(size, len(prompts))
    for prompt in prompts:
        made.observe(PackedTokens.of(prompt))
    return made


def check(prompts: list[Prompt], size: int) -> None:
    made = curve(prompts, size)
    largest = len(made.hit_blocks()) + 2
    for num_blocks in range(made.valid_from, max(largest, made.valid_from + 1) + 1):
        hits, _ = replayed(prompts, size, num_blocks, build("evictor", "lru"))
        assert made.hits_at(num_blocks) == sum(h or 0 for h in hits), num_blocks
    assert made.hits_at(largest + made.valid_from) == made.ceiling_blocks


@settings(max_examples=40, deadline=None)
@given(prompts=PROMPTS, size=st.integers(1, 4))
def test_every_pool_size_hits_exactly_what_a_replay_of_it_hits(prompts: list[Prompt], size: int) -> None:
    check(prompts, size)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_exact_on_longer_traffic_too(size: int) -> None:
    check(drawn_prompts(7, count=80, longest=12), size)


def test_a_pool_that_would_refuse_a_request_is_refused() -> None:
    with pytest.raises(ValueError, match="refuses a request of 5"):
        curve([(1,) * 9], 2).hits_at(4)
