"""Requests per second of the whole cache path, match → allocate → commit → free, on `workload=zipf_system_prompts`.

What is timed is what a scheduler does per request: from its token ids (packed, or a Python list) to the freed sequence.
Making the workload is not. Knows nothing of how figures are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from cache.access import Access
from cache.allocator.base import Allocator
from cache.allocator.hash_chain import HashChain
from cache.allocator.naive import Naive
from cache.allocator.radix import Radix
from cache.evictor.lru import Lru
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens, TokenIds, unpack
from experiments.bench.timing import best

CONF = Path(__file__).parents[2] / "conf"
WORKLOAD = CONF / "workload" / "zipf_system_prompts.yaml"
BLOCK_SIZE = 16
NUM_BLOCKS = 20_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table."""

    requests_per_second: float
    token_hit_rate: float


def packed_prompts(limit: int | None) -> list[bytes]:
    """The workload's prompts as little-endian int32."""
    return [request.tokens.packed() for request in instantiate(OmegaConf.load(WORKLOAD), limit=limit)]


def serve(manager: CacheManager, prompts: Iterable[Any], tokens: Callable[[Any], TokenIds], first: int = 0) -> int:
    """One request after the other, from token ids to the freed sequence; returns the hit tokens."""
    hits = 0
    for index, prompt in enumerate(prompts, first):
        seq = Sequence(tokens(prompt), Access(index))
        hits += manager.allocate(seq)
        manager.promote_to_immutable(seq, seq.num_tokens)
        manager.free(seq)
    return hits


def timed(make: Callable[[], Allocator], prompts: list[Any], tokens: Callable[[Any], TokenIds], repeats: int) -> Figure:
    """The workload through a cold cache, best of several."""
    hits = 0

    def run() -> None:
        nonlocal hits
        hits = serve(CacheManager(make()), prompts, tokens)

    seconds = best(lambda: run, repeats)
    num_tokens = sum(len(tokens(prompt)) for prompt in prompts)
    return Figure(len(prompts) / seconds, hits / num_tokens)


def allocators(prompts: list[bytes], repeats: int = 3) -> dict[str, Figure]:
    """`radix`, `hash_chain` and `naive` with LRU, from packed ids; the first two from Python lists as well."""

    def chain() -> Allocator:
        return HashChain(NUM_BLOCKS, BLOCK_SIZE, BuiltinHash(), Lru())

    def tree() -> Allocator:
        return Radix(NUM_BLOCKS, BLOCK_SIZE, BuiltinHash(), Lru())

    lists = [unpack(prompt) for prompt in prompts[: max(len(prompts) // 5, 1)]]  # 2,304 int objects per prompt
    return {
        "radix": timed(tree, prompts, PackedTokens, repeats),
        "hash_chain": timed(chain, prompts, PackedTokens, 1),
        "naive": timed(lambda: Naive(NUM_BLOCKS, BLOCK_SIZE), prompts, PackedTokens, repeats),
        "radix from lists": timed(tree, lists, PackedTokens.of, repeats),
        "hash_chain from lists": timed(chain, lists, PackedTokens.of, repeats),
    }
