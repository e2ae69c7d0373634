"""What a cache without bounds would have hit: the ceiling every policy stays under.

The tree of runs of `cache.run` without blocks: exact, and its cost is per run. Knows nothing of pools or policies.
"""

from __future__ import annotations

from cache.run import Run, num_common_blocks
from cache.tokens import TokenIds
from experiments.workload.base import Workload

FINE = 16
"""Tokens: granularity at which distinct prefixes of real token ids are counted."""
NO_BLOCK = -1


class InfiniteCache:
    """Every prefix ever seen. Memory: the distinct contents (`TokenIds.packed_contents`) and 8 bytes per block."""

    def __init__(self) -> None:
        self._roots: dict[bytes, Run] = {}
        self._num_blocks = 0

    def __len__(self) -> int:
        """Distinct prefixes seen, in blocks."""
        return self._num_blocks

    def observe(self, root: bytes, tokens: TokenIds, block_size: int) -> int:
        """How many leading full blocks of this prompt were seen before; then all of them are.

        `root`: the encoded extra keys; one block size per cache.
        """
        data, stride = tokens.packed_contents(block_size)
        stop = len(tokens) // block_size
        node = self._roots.setdefault(root, Run(None, root, 0, [], 0, 0, 0))
        hits = 0
        while hits < stop:
            offset = hits * stride
            child = node.children.get(data[offset : offset + stride]) if node.children else None
            if child is None:
                new = stop - hits
                node.attach(Run(node, data[offset : stop * stride], stride, [NO_BLOCK] * new, hits, 0, 0))
                self._num_blocks += new
                break
            count = len(child.blocks)
            if count > stop - hits or not data.startswith(child.data, offset):
                count = num_common_blocks(child, data, offset, min(count, stop - hits))
                if count < len(child.blocks):
                    child = child.split(count)
            hits += count
            node = child
        return hits


def footprint(workload: Workload) -> int:
    """Distinct prefix tokens of a workload: what an infinite cache holds at its end, whatever the block size.

    Counted at the workload's own granularity, or every 16 tokens for real token ids.
    """
    size = max(workload.granularity, FINE)
    cache = InfiniteCache()
    for request in workload:
        cache.observe(request.extra_keys.encode(), request.tokens, size)
    return len(cache) * size
