"""Instant replay again, block by block, on prefixes spelled out as tuples: slow, and shares no code with the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass
class Resident:
    inserted: int
    last: int
    count: int
    depth: int


def simulate(
    prompts: Iterable[tuple[int, ...]],
    block_size: int,
    num_blocks: int,
    choose: Callable[[dict[tuple[int, ...], Resident], int], tuple[int, ...]],
) -> list[int | None]:
    """Hit blocks per prompt (None: refused). `choose(candidates, now)` names the victim among evictable prefixes."""
    cache: dict[tuple[int, ...], Resident] = {}
    hits_per_prompt: list[int | None] = []
    for now, prompt in enumerate(prompts):
        length, size = len(prompt), block_size
        prefixes = [prompt[:end] for end in range(size, length + 1, size)]
        if -(-length // size) > num_blocks:
            hits_per_prompt.append(None)
            continue
        hits = 0
        while hits < (length - 1) // size and prefixes[hits] in cache:
            hits += 1
        for prefix in prefixes[:hits]:
            cache[prefix].last, cache[prefix].count = now, cache[prefix].count + 1
        while num_blocks - len(cache) < -(-length // size) - hits:
            parents = {prefix[:-size] for prefix in cache}
            free = {p: r for p, r in cache.items() if p not in parents and p not in prefixes[:hits]}
            del cache[choose(free, now)]
        for depth, prefix in enumerate(prefixes[hits:], hits):
            if prefix in cache:  # the last block of a prompt that was resident as a whole
                cache[prefix].last, cache[prefix].count = now, cache[prefix].count + 1
            else:
                cache[prefix] = Resident(now, now, 1, depth)
        hits_per_prompt.append(hits)
    return hits_per_prompt
