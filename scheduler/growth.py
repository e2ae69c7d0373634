"""How many blocks a set of branches needs for the tokens they are about to get.

Knows nothing of who goes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from cache.manager import CacheManager
from scheduler.request import Branch


def blocks_needed(growing: Iterable[Branch], manager: CacheManager) -> int:
    """Exact, forks included: of k branches that share a tail and all write to it, k − 1 need a copy."""
    needed, tails = 0, Counter[tuple[int, int]]()
    for branch in growing:
        seq = branch.seq
        needed += manager.num_blocks_for(branch.num_tokens) - len(seq.block_table)
        if (owners := manager.num_tail_owners(seq)) > 1:
            tails[seq.block_table[-1], owners] += 1
    return needed + sum(count - (count == owners) for (_, owners), count in tails.items())


def are_short(growing: Mapping[Branch, int], manager: CacheManager) -> bool:
    """Whether fewer blocks are available than these branches need. The most they may need mostly settles it."""
    available = manager.allocator.num_available
    if sum(growing.values()) <= available:
        return False
    manager.catch_up()
    return blocks_needed(growing, manager) > available
