"""`radix` against `hash_chain`: not to be told apart by anything but the clock."""

from __future__ import annotations

import random

import pytest
from support.conf import ONLINE_EVICTORS, build
from support.twins import Twins

from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.hashing.builtin import BuiltinHash
from cache.tokens import PackedTokens, TokenIds, TraceTokens

BASES = [[0] * 40, [0, 1] * 20, [0, 0, 1, 1] * 10]


def packed(draw: random.Random) -> TokenIds:
    """A prefix of one of three long prompts, mostly with a tail of its own."""
    base = draw.choice(BASES)[: draw.randrange(1, 40)]
    return PackedTokens.of(base + [draw.randrange(2) for _ in range(draw.randrange(5))])


def traced(draw: random.Random) -> TokenIds:
    """The same of a trace of 2-token units."""
    ids = draw.choice(BASES)[: draw.randrange(1, 16)] + [draw.randrange(4) for _ in range(draw.randrange(3))]
    return TraceTokens(ids, 2 * len(ids) - draw.randrange(2), 2)


def twins(evictor: str, num_blocks: float, block_size: int) -> Twins:
    return Twins(
        HashChain(num_blocks, block_size, BuiltinHash(), build("evictor", evictor)),
        Radix(num_blocks, block_size, BuiltinHash(), build("evictor", evictor)),
    )


@pytest.mark.parametrize("evictor", ONLINE_EVICTORS)
@pytest.mark.parametrize("prompt", [packed, traced])
def test_random_traffic_leaves_both_in_the_same_state_after_every_step(evictor: str, prompt: object) -> None:
    draw = random.Random(f"{evictor} {prompt.__name__}")
    for block_size in (1, 2, 3, 4):
        pair = twins(evictor, draw.randrange(20, 40), block_size)
        for i in range(3000):
            pair.step(draw, prompt)
            pair.compare()
            if i % 50 == 0:
                pair.compare_every_block()
