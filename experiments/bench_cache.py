"""What the cache itself costs: nanoseconds per block for hashing, misses, hits and eviction, in one run.

    python -m experiments.bench_cache
    python -m experiments.bench_cache --trace data/mooncake_conversation_trace.jsonl.gz

Ratios of one run compare; absolute times belong to the machine named beside them. Every figure is the best of several
repeats, garbage collection off. Knows nothing of models: what a block is worth is another bench.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from cache.access import Access
from cache.allocator.base import Allocator
from cache.allocator.hash_chain import HashChain
from cache.allocator.naive import Naive
from cache.evictor.lru import Lru
from cache.hashing.base import Hasher
from cache.hashing.builtin import BuiltinHash
from cache.hashing.sha256 import Sha256
from cache.hashing.xxh3 import Xxh3
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens
from experiments.errors import UserError
from experiments.replay import replay
from experiments.workload.mooncake import Mooncake
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


def best(prepare: Callable[[], Callable[[], Any]], repeats: int) -> float:
    """Seconds of the fastest of several runs; what `prepare` does is not timed."""
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            run = prepare()
            start = perf_counter()
            run()
            times.append(perf_counter() - start)
    finally:
        gc.enable()
    return min(times)


def per_block(prepare: Callable[[], Callable[[], Any]], repeats: int = 5) -> float:
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

    figures = {f"hash {name}": hashing(make) for name, make in HASHERS.items()}
    figures |= {f"full hit {name}": serving(chain(make), 1, 1) for name, make in HASHERS.items()}
    figures |= {f"full miss {name}": serving(chain(make), None, 1) for name, make in HASHERS.items()}
    figures["full miss, each evicting one"] = serving(chain(num_blocks=pool), 2, 1)
    figures["no sharing (naive)"] = serving(lambda: Naive(inf, BLOCK_SIZE), None, 1)
    figures["eviction"] = figures["full miss, each evicting one"] - figures["full miss builtin"]
    figures["prefix caching at 0 % hits"] = figures["full miss builtin"] - figures["no sharing (naive)"]
    return figures


def replay_trace(path: Path) -> dict[str, Any]:
    """The trace at block size 512 through `hash_chain` + `lru`, 10,000 blocks, best of three."""
    runs = []
    for _ in range(3):
        manager = CacheManager(HashChain(10_000, 512, BuiltinHash(), Lru()))
        runs.append(replay(Mooncake(path=str(path)), manager))
    return max(runs, key=lambda metrics: float(metrics["blocks_per_second"]))


def main() -> None:
    """Print the table; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="a Mooncake trace to replay as well")
    options = parser.parse_args()
    figures = measure()
    console = Console(stderr=True)
    table = Table(
        title=f"Cache cost per block of {BLOCK_SIZE} tokens ({platform.machine()}, Python {platform.python_version()})"
    )
    table.add_column("what")
    table.add_column("ns per block", justify="right")
    table.add_column("x builtin hash", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.0f}", f"{value / figures['hash builtin']:.1f}")
    console.print(table)
    result: dict[str, Any] = {name.replace(" ", "_"): round(value, 1) for name, value in figures.items()}
    if options.trace:
        try:
            metrics = replay_trace(options.trace)
        except UserError as error:
            sys.exit(f"error: {error}")
        console.print(
            f"{options.trace.name}, block size 512, 10,000 blocks, hash_chain + lru: "
            f"{metrics['blocks_per_second']:,.0f} blocks/s, token hit rate {metrics['token_hit_rate']:.4f}"
        )
        result["trace_blocks_per_second"] = round(metrics["blocks_per_second"])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
