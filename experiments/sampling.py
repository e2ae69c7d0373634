"""Part of a workload that behaves like the whole at part of the pool: spatial sampling by branches of the prefix tree.

Requests that share more than the common trunk are in or out together: a request's unit is the first run of its path
that fewer than `hot_share` of the requests pass. A pool of N blocks becomes one of p + rate·(N - p): the trunk's blocks
and those a request holds while it runs do not shrink with the sample, so p is the trunk plus a mean request's own.

Source: Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015, whose units are
single blocks; here a block without its ancestors could never hit.

Knows nothing of policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from math import inf
from zlib import crc32

from cache.prefix_tree import PrefixTree
from experiments.workload.base import Request

HOT_SHARE = 0.1
FEWEST = 200
"""Samples of fewer requests say nothing."""
BUCKETS = 2**32


class Sampling:
    """Units of a workload at one block size."""

    def __init__(self, requests: Sequence[Request], block_size: int, hot_share: float = HOT_SHARE) -> None:
        self.requests = requests
        self.block_size = block_size
        tree = PrefixTree(block_size)
        paths = [(r.tokens.segments(block_size), r.extra_keys.encode()) for r in requests]
        for segments, root in paths:
            tree.walk(segments, None, root=root)
        runs = [[node for node, _ in tree.walk(segments, None, root=root).runs] for segments, root in paths]
        passed = Counter(node.first for path in runs for node in path)
        length = {node.first: node.length for path in runs for node in path}
        hot = {first for first, times in passed.items() if times >= max(hot_share * len(requests), 2)}
        self.units = [_unit([node.first for node in path], hot) for path in runs]
        self.trunk_blocks = sum(length[first] for first in hot)
        own = [sum(node.length for node in path if node.first not in hot) for path in runs]
        self.pinned = self.trunk_blocks + sum(own) / max(len(own), 1)
        self.most_blocks = max((-(-len(r.tokens) // block_size) for r in requests), default=0)

    def pick(self, rate: float, index: int, seed: int = 0) -> list[Request]:
        """The requests of sample `index`: samples of one seed do not overlap as long as rate·(index + 1) <= 1."""
        low, high = (round(BUCKETS * rate * i) for i in (index, index + 1))
        return [r for r, unit in zip(self.requests, self.units, strict=True) if low <= _bucket(unit, seed) < high]

    def pool(self, num_blocks: float, rate: float) -> int:
        """The pool at which a sample stands for the whole at `num_blocks`."""
        return max(1, round(self.pinned + rate * (num_blocks - self.pinned)))

    def suits(self, num_blocks: float, rate: float) -> bool:
        """Whether sample and pool are large enough: at least `FEWEST` requests, and room for two of the largest."""
        return (
            len(self.requests) * rate >= FEWEST
            and self.pinned < num_blocks < inf
            and self.pool(num_blocks, rate) >= 2 * self.most_blocks
        )


def _unit(path: Sequence[int], hot: Container[int]) -> int:
    return next((run for run in path if run not in hot), path[-1] if path else -1)


def _bucket(unit: int, seed: int) -> int:
    return crc32(unit.to_bytes(8, "little", signed=True), crc32(seed.to_bytes(8, "little")))
