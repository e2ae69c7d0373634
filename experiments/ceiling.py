"""What a cache without bounds would have hit: the ceiling every policy stays under.

Knows nothing of pools or policies. Prefixes are told apart by a 64-bit chained hash (a false match among ten million
prefixes has a chance below one in 300,000).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from experiments.workload.base import Workload

FINE = 16
"""Tokens: granularity at which distinct prefixes of real token ids are counted."""


class InfiniteCache:
    """Every prefix ever seen. Memory: about 60 bytes per distinct prefix."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def __len__(self) -> int:
        """Distinct prefixes seen, in blocks."""
        return len(self._seen)

    def observe(self, root: bytes, contents: Sequence[Hashable]) -> int:
        """How many leading blocks of this prompt were seen before; then all of them are."""
        key = hash(root)
        keys = []
        for content in contents:
            key = hash((key, content))
            keys.append(key)
        seen, hits = self._seen, 0
        for key in keys:
            if key not in seen:
                break
            hits += 1
        seen.update(keys[hits:])
        return hits


def footprint(workload: Workload) -> int:
    """Distinct prefix tokens of a workload: what an infinite cache holds at its end, whatever the block size.

    Counted at the workload's own granularity, or every 16 tokens for real token ids.
    """
    size = max(workload.granularity, FINE)
    cache = InfiniteCache()
    for request in workload:
        cache.observe(request.extra_keys.encode(), request.tokens.contents(size))
    return len(cache) * size
