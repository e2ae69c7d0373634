"""Appending to several sequences at once, or what is computed already, is the same as one after the other."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conf import SHARING, build, sharing_allocator

from cache.access import Access
from cache.errors import MisuseError
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens, int32


def told(manager: CacheManager, sequences: list[Sequence]) -> Any:
    """All that can be seen of a cache."""
    allocator = manager.allocator
    tables = [(seq.block_table, seq.num_computed_tokens, seq.num_immutable_blocks) for seq in sequences]
    states = [(allocator.state(block), allocator.ref_count(block)) for block in range(int(allocator.num_blocks))]
    return tables, states, allocator.num_available, allocator.stats


@pytest.mark.parametrize("policy", ["lru", "lfu", "random", "s3fifo"])
@pytest.mark.parametrize("allocator", SHARING)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 4), num_blocks=st.integers(8, 20))
def test_blocks_taken_at_once_are_those_taken_one_after_the_other(
    allocator: str, policy: str, seed: int, size: int, num_blocks: int
) -> None:
    draw = random.Random(seed)
    managers = [
        CacheManager(sharing_allocator(allocator, num_blocks, size, evictor=build("evictor", policy))) for _ in "ab"
    ]
    one, other = managers
    live: list[list[Sequence]] = []
    for index in range(30):
        prompt = [draw.randrange(2) for _ in range(draw.randrange(1, 3 * size + 1))]
        pair = [Sequence(PackedTokens.of(prompt), Access(index)) for _ in managers]
        if one.can_allocate(pair[0]):
            for manager, seq in zip(managers, pair, strict=True):
                manager.allocate(seq)
                manager.promote_to_immutable(seq, len(prompt))
            live.append(pair)
        grown = [
            (pair, int32(draw.randrange(2) for _ in range(draw.choice((1, 1, 1, size, size + 1)))))
            for pair in draw.sample(live, draw.randrange(len(live) + 1))
            if draw.random() < 0.3 or len(pair[0].block_table) * size == pair[0].num_tokens
        ]
        if len(grown) * 3 <= one.allocator.num_available:
            copies = one.append_each([(pair[0], tokens) for pair, tokens in grown])
            assert copies == [copy for pair, tokens in grown for copy in other.append(pair[1], tokens)]
        for pair in draw.sample(live, draw.randrange(len(live) + 1) // 2):
            live.remove(pair)
            for manager, seq in zip(managers, pair, strict=True):
                manager.promote_to_immutable(seq, seq.num_tokens)
                manager.free(seq)
        assert told(one, [pair[0] for pair in live]) == told(other, [pair[1] for pair in live])
        one.check_integrity()


@pytest.mark.parametrize("allocator", SHARING)
def test_computed_tokens_go_into_slots_that_are_there_and_nobody_elses(allocator: str) -> None:
    manager = CacheManager(sharing_allocator(allocator, 10, 4, evictor=build("evictor", "lru")))
    seq = Sequence(PackedTokens.of(range(6)), Access(0))
    manager.allocate(seq)
    manager.promote_to_immutable(seq, 6)
    with pytest.raises(MisuseError, match="no slots of their own in 2 blocks"):
        manager.append_computed(seq, [6, 7, 8])
    twin = manager.fork(seq)
    with pytest.raises(MisuseError, match="no slots of their own"):
        manager.append_computed(seq, [6])
    manager.free(twin)
    manager.append_computed(seq, [6, 7])
    assert (seq.num_tokens, seq.num_computed_tokens, seq.num_immutable_blocks) == (8, 8, 2)
    manager.check_integrity()
