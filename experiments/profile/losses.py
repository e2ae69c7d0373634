"""From common prefixes to hits: what every block size would have hit, and what its last partial blocks lose.

With an infinite cache a prompt of L tokens, the first C of them seen before, hits min(⌊C/B⌋, ⌊(L−1)/B⌋) blocks of B: an
earlier prompt with the same C tokens filled every one of those blocks. So one number per prompt tells all block
sizes at once.

Knows nothing of pools: nothing is ever evicted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Losses:
    """Sums over prompts, for several block sizes."""

    def __init__(self, block_sizes: Sequence[int]) -> None:
        self.block_sizes = list(block_sizes)
        self.prompts = 0
        self.prompt_tokens = 0
        self.shared_tokens = 0
        """Σ min(C, L−1): the last token of a prompt is always computed."""
        self._hits = [0] * len(self.block_sizes)
        self._tails = [0] * len(self.block_sizes)

    def add(self, length: int, common: int) -> None:
        """One prompt of `length` tokens, the first `common` of which were seen before."""
        self.prompts += 1
        self.prompt_tokens += length
        useful = min(common, length - 1)
        self.shared_tokens += useful
        for i, size in enumerate(self.block_sizes):
            self._hits[i] += useful - useful % size
            self._tails[i] += length % size

    def rows(self) -> list[dict[str, Any]]:
        """A row per block size: hit rate, shared tokens lost to a block only part of which is shared, tail tokens."""
        total = max(self.prompt_tokens, 1)
        return [
            {
                "block_size": size,
                "token_hit_rate": hits / total,
                "lost_tokens": self.shared_tokens - hits,
                "lost_rate": (self.shared_tokens - hits) / total,
                "tail_tokens": tails,
                "tail_rate": tails / total,
            }
            for size, hits, tails in zip(self.block_sizes, self._hits, self._tails, strict=True)
        ]
