"""A policy told block by block and by run, through the same traffic: what it evicts each time.

Two requests are in flight at a time and the first is computed in two parts, so that runs are split, joined, pinned and
uncovered. Knows nothing of what the policy goes by.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.evictor.base import Evictor
from cache.future import Future
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.observer import Observer
from cache.sequence import Sequence
from cache.tokens import PackedTokens

Prompt = tuple[int, ...]


class Victims(Observer):
    """Writes down what is evicted, in order."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def evicted(self, blocks: Items[int]) -> None:
        self.blocks.extend(blocks)


def evictions(
    allocator: type[HashChain | Radix],
    evictor: Evictor,
    prompts: list[Prompt],
    num_blocks: int,
    describe: Callable[[int, Prompt], Access],
) -> list[list[int]]:
    """The victims per pair of requests, which must fit the pool together; one token stands for each block."""
    manager, victims = CacheManager(allocator(num_blocks, 1, BuiltinHash(), evictor)), Victims()
    manager.observe(victims)
    packed = [PackedTokens.of(prompt) for prompt in prompts]
    evictor.foresee(Future((b"", tokens.contents(1), len(tokens) - 1) for tokens in packed))
    made: list[list[int]] = []
    for i in range(0, len(prompts) - 1, 2):
        pair = [Sequence(packed[at], describe(at, prompts[at])) for at in (i, i + 1)]
        for seq in pair:
            manager.allocate(seq)
        first, second = pair
        for seq, stop in (first, first.num_tokens // 2 + 1), (second, second.num_tokens), (first, first.num_tokens):
            manager.promote_to_immutable(seq, max(stop, seq.num_computed_tokens))
        for seq in pair:
            manager.free(seq)
        manager.check_integrity()
        made.append(victims.blocks[:])
        victims.blocks.clear()
    return made
