"""A branch may be forked off before its blocks are computed; whoever computes them first, the books stay right."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.conf import SHARING, sharing_allocator
from support.sequences import finish, sequence

from cache.errors import OutOfBlocks, SequenceTooLarge
from cache.manager import CacheManager

Make = Callable[..., CacheManager]


def test_shared_blocks_that_somebody_else_computed_first_stay_private(manager: Make) -> None:
    cache = manager(num_blocks=4, block_size=1)
    cache.allocate(early := sequence([1, 2]))
    branch = cache.fork(early)
    cache.allocate(other := sequence([1]))
    cache.promote_to_immutable(other, 1)
    own = early.block_table[:]
    cache.promote_to_immutable(early, 2)
    assert early.block_table == own
    assert early.num_immutable_blocks == 0
    cache.check_integrity()
    for seq in (early, other, branch):
        cache.free(seq)
    cache.check_integrity()
    cache.allocate(sequence([7, 8, 9, 10]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), block_size=st.integers(1, 2))
def test_what_is_available_can_be_had_and_allocators_agree(seed: int, block_size: int) -> None:
    def outcomes(name: str) -> list[Any]:
        cache, live, seen = CacheManager(sharing_allocator(name, 8, block_size)), [], []
        draw = Random(seed)
        for index in range(80):
            what = draw.choices(["allocate", "fork", "promote", "free"], [3, 1, 3, 3])[0]
            seq = draw.choice(live) if live else None
            if what == "allocate":
                prompt = sequence(draw.choices([0, 1], [4, 1], k=draw.randint(1, 3 * block_size)), index)
                try:
                    cache.allocate(prompt)
                    live.append(prompt)
                except (OutOfBlocks, SequenceTooLarge):
                    assert not cache.can_allocate(prompt)
            elif seq is not None and what == "fork":
                live.append(cache.fork(seq))
            elif seq is not None and what == "promote":
                cache.promote_to_immutable(seq, draw.randint(seq.num_computed_tokens, seq.num_tokens))
            elif seq is not None:
                live.remove(seq)
                cache.free(seq)
            cache.check_integrity()
            seen.append([(seq.block_table[:], seq.num_immutable_blocks) for seq in live])
        for seq in live:
            finish(cache, seq)
        cache.allocate(sequence([9] * 8 * block_size, 80))
        return seen

    first, *others = (outcomes(name) for name in SHARING)
    assert all(other == first for other in others)
