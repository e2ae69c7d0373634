"""Nanoseconds per block: hashing, misses, hits and eviction, one by one, of prompts of 256 blocks that share nothing.

Knows nothing of whole workloads; `serving` has those.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from cache.access import Access
from cache.allocator.base import Allocator
from cache.allocator.hash_chain import HashChain
from cache.allocator.naive import Naive
from cache.allocator.radix import Radix
from cache.evictor.lru import Lru
from cache.hashing.base import Hasher
from cache.hashing.builtin import BuiltinHash
from cache.hashing.sha256 import Sha256
from cache.hashing.xxh3 import Xxh3
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens
from experiments.bench.timing import Prepared, best
from experiments.workload.randomness import random_tokens, stream

BLOCK_SIZE = 16
BLOCKS = 256
"""Full blocks per prompt; one more token makes the last of them a legal hit."""
PROMPTS = 100
HASHERS: dict[str, Callable[[], Hasher]] = {"builtin": BuiltinHash, "xxh3": Xxh3, "sha256": Sha256}


def prompts(seed: int) -> list[PackedTokens]:
    """Prompts that share nothing."""
    draw = stream(seed)
    return [PackedTokens(random_tokens(draw, BLOCKS * BLOCK_SIZE + 1, 49_152)) for _ in range(PROMPTS)]


def serve(manager: CacheManager, tokens: list[PackedTokens], first: int = 0) -> None:
    """One request after the other, allocate to free."""
    for index, prompt in enumerate(tokens, first):
        seq = Sequence(prompt, Access(index))
        manager.allocate(seq)
        manager.promote_to_immutable(seq, len(prompt))
        manager.free(seq)


def per_block(prepare: Prepared, repeats: int = 5) -> float:
    """Nanoseconds per block of `PROMPTS` prompts."""
    return best(prepare, repeats) / (PROMPTS * BLOCKS) * 1e9


def hashing(make: Callable[[], Hasher]) -> float:
    """Nanoseconds per block to chain the keys of prompts never hashed before."""

    def prepare() -> Callable[[], Any]:
        hasher = make()
        contents = [tokens.contents(BLOCK_SIZE) for tokens in prompts(1)]
        return lambda: [hasher.chain(hasher.root(b""), content) for content in contents]

    return per_block(prepare)


def serving(make: Callable[[], Allocator], warm_seed: int | None, seed: int) -> float:
    """Nanoseconds per block to serve the prompts of `seed` after those of `warm_seed`."""

    def prepare() -> Callable[[], Any]:
        manager = CacheManager(make())
        if warm_seed is not None:
            serve(manager, prompts(warm_seed))
        fresh = prompts(seed)
        return lambda: serve(manager, fresh, PROMPTS)

    return per_block(prepare)


def measure() -> dict[str, float]:
    """All figures, nanoseconds per block of 16 tokens."""
    pool = PROMPTS * (BLOCKS + 1)

    def chain(make: Callable[[], Hasher] = BuiltinHash, num_blocks: float = inf) -> Callable[[], Allocator]:
        return lambda: HashChain(num_blocks, BLOCK_SIZE, make(), Lru())

    def tree(num_blocks: float = inf) -> Callable[[], Allocator]:
        return lambda: Radix(num_blocks, BLOCK_SIZE, BuiltinHash(), Lru())

    figures = {f"hash {name}": hashing(make) for name, make in HASHERS.items()}
    figures |= {f"full hit {name}": serving(chain(make), 1, 1) for name, make in HASHERS.items()}
    figures |= {f"full miss {name}": serving(chain(make), None, 1) for name, make in HASHERS.items()}
    figures |= {"full hit radix": serving(tree(), 1, 1), "full miss radix": serving(tree(), None, 1)}
    figures["full miss radix, each evicting one"] = serving(tree(pool), 2, 1)
    figures["full miss, each evicting one"] = serving(chain(num_blocks=pool), 2, 1)
    figures["no sharing (naive)"] = serving(lambda: Naive(inf, BLOCK_SIZE), None, 1)
    figures["eviction"] = figures["full miss, each evicting one"] - figures["full miss builtin"]
    figures["prefix caching at 0 % hits"] = figures["full miss builtin"] - figures["no sharing (naive)"]
    return figures
