"""How the cost of a request or a lookup grows: with the pool, with the prompt, with the number of runs it lies in.

Knows nothing of how figures are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from cache.access import Access
from cache.allocator.base import Allocator
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.evictor.lru import Lru
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import TOKEN_BYTES, PackedTokens
from experiments.bench.serving import BLOCK_SIZE, serve
from experiments.bench.timing import best, per_call
from experiments.workload.randomness import random_tokens, stream

ALLOCATORS: dict[str, type[Radix] | type[HashChain]] = {"radix": Radix, "hash_chain": HashChain}
POOLS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
SHARED_TOKENS, OWN_TOKENS = 2048, 256
LOOKUPS = (16, 64, 256, 1024, 4096, 8192, 32_768)
"""Tokens of a prompt that is wholly resident."""


def make_allocator(name: str, num_blocks: float, block_size: int = BLOCK_SIZE) -> Allocator:
    """`radix` or `hash_chain` with LRU."""
    return ALLOCATORS[name](num_blocks, block_size, BuiltinHash(), Lru())


def cost_by_pool(name: str, pools: tuple[int, ...] = POOLS, measured: int = 1000) -> dict[int, float]:
    """Microseconds per request with a pool of so many blocks, once it is full: 4 system prompts of 2,048 tokens, 256
    tokens of one's own, every request evicting what another one left."""
    costs = {}
    for num_blocks in pools:
        manager, draw = CacheManager(make_allocator(name, num_blocks)), stream(0)
        system = [random_tokens(draw, SHARED_TOKENS, 49_152) for _ in range(4)]

        def prompts(count: int, draw: object = draw, system: list[bytes] = system) -> list[bytes]:
            return [system[i % 4] + random_tokens(draw, OWN_TOKENS, 49_152) for i in range(count)]  # type: ignore[arg-type]

        served = 0
        while not manager.allocator.stats.evictions:
            serve(manager, prompts(64), PackedTokens, served)
            served += 64
        batches = [prompts(measured) for _ in range(3)]

        def prepare(manager: CacheManager = manager, batches: list[list[bytes]] = batches) -> Callable[[], object]:
            batch = batches.pop()
            return lambda: serve(manager, batch, PackedTokens, manager.allocator._now + 1)  # type: ignore[attr-defined]

        costs[num_blocks] = best(prepare, len(batches)) / measured * 1e6
    return costs


def resident(name: str, num_tokens: int, runs: int) -> tuple[CacheManager, bytes]:
    """A cache that holds a prompt, in so many runs of equal length, and that prompt with one more token.

    A run ends where another prompt leaves it, so `runs - 1` other prompts do.
    """
    manager, data = CacheManager(make_allocator(name, inf)), random_tokens(stream(1), num_tokens + 1, 49_152)
    leave = random_tokens(stream(2), BLOCK_SIZE, 49_152)
    step = num_tokens // runs
    others = [data[: TOKEN_BYTES * stop] + leave for stop in range(step, num_tokens, step)]
    serve(manager, [data, *others], PackedTokens)
    return manager, data


def lookup(name: str, num_tokens: int, runs: int = 1) -> float:
    """Microseconds to find a wholly resident prompt: hashing where there is any, walking, the table of its blocks."""
    manager, data = resident(name, num_tokens, runs)
    seq = Sequence(PackedTokens(data), Access(0))
    manager.can_allocate(seq)
    root, limit, hits = seq.root, num_tokens // BLOCK_SIZE, 0

    def find() -> None:
        nonlocal hits
        fresh = Sequence(seq.prompt, seq.access)
        fresh.root = root
        hits = len(manager.allocator.find(fresh, limit).blocks)

    seconds = per_call(find, calls=max(20, 2000 // limit))
    if hits != limit:
        raise AssertionError(f"{hits} of {limit} blocks were found")
    return seconds * 1e6
