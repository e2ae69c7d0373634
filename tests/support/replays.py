"""Small replays that remember what was evicted, and prompts drawn so that they share."""

from __future__ import annotations

import random
from typing import Any

from cache.access import Access, Retention
from cache.allocator.hash_chain import HashChain
from cache.evictor.base import Evictor
from cache.future import Future
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens, unpack
from support.conf import build

Prompt = tuple[int, ...]


class Remembering(HashChain):
    """A hash chain that writes down the prefix of every victim."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.victims: list[Prompt] = []

    def _uncover(self, block: int) -> int:
        node, tokens = self._nodes[block], []
        while node[0] is not None:
            tokens = unpack(node[1]) + tokens
            node = node[0]
        self.victims.append(tuple(tokens))
        return super()._uncover(block)


def replayed(
    prompts: list[Prompt],
    block_size: int,
    num_blocks: int,
    evictor: Evictor,
    accesses: list[Access] | None = None,
    leaf_only: bool = True,
) -> tuple[list[int | None], list[Prompt]]:
    """Hit blocks per prompt (None: refused) and the victims in order, by the real cache."""
    allocator = Remembering(num_blocks, block_size, BuiltinHash(), evictor, leaf_only)
    manager = CacheManager(allocator)
    packed = [PackedTokens.of(prompt) for prompt in prompts]
    if evictor.needs_future:
        fits = [manager.num_blocks_for(len(tokens)) <= num_blocks for tokens in packed]
        evictor.foresee(
            Future(
                (b"", t.contents(block_size), (len(t) - 1) // block_size) if ok else None
                for t, ok in zip(packed, fits, strict=True)
            )
        )
    hits: list[int | None] = []
    for i, tokens in enumerate(packed):
        seq = Sequence(tokens, accesses[i] if accesses else Access(i, time=float(i), num_tokens=len(tokens)))
        if not manager.fits(seq):
            hits.append(None)
            continue
        manager.allocate(seq)
        manager.promote_to_immutable(seq, len(tokens))
        hits.append(seq.num_hit_blocks)
        manager.free(seq)
        manager.check_integrity()
    return hits, allocator.victims


def hit_blocks(prompts: list[Prompt], policy: str, block_size: int = 1, num_blocks: int = 24) -> int:
    """Sum of hit blocks of one policy."""
    return sum(h or 0 for h in replayed(prompts, block_size, num_blocks, build("evictor", policy))[0])


def drawn_prompts(seed: int, count: int = 60, longest: int = 24) -> list[Prompt]:
    """Prompts that continue, branch off or repeat earlier ones."""
    draw, prompts = random.Random(seed), [(0,)]
    for _ in range(count):
        base = draw.choice(prompts[-12:])
        keep = draw.randrange(len(base) + 1)
        tail = tuple(draw.randrange(3) for _ in range(draw.randrange(1, 8)))
        prompts.append((base[:keep] + tail)[:longest])
    return prompts


def drawn_accesses(seed: int, prompts: list[Prompt], tokens_per_block: int) -> list[Access]:
    """What each request says of itself: every hint, often missing, with ranges that end within blocks and time that
    stands still or steps back."""
    draw, time, accesses = random.Random(seed), 0.0, []
    for index, prompt in enumerate(prompts):
        time += draw.choice((0.0, 1.0, 7.5, -2.0))
        length = len(prompt) * tokens_per_block
        cut, end = sorted(draw.sample(range(length + tokens_per_block), 2))
        marks = (
            Retention(0, cut + 1, draw.choice((0, 20, 80)), draw.choice((None, 5.0, 30.0))),
            Retention(cut + 1, draw.choice((None, end + 1)), draw.choice((35, 100)), draw.choice((None, 12.0))),
        )
        accesses.append(
            Access(
                index,
                time,
                length,
                session=draw.choice((None, "a", "b", "b")),
                category=draw.choice((None, "chat", "api")),
                priority=draw.choice((0, 0, 10, 60)),
                retention=marks[: draw.randrange(3)],
                last_turn=draw.random() < 0.1,
            )
        )
    return accesses
