"""Block sizes without a replay: the longest prefix a prompt shares with any earlier one decides them all.

With an infinite pool, a prompt of L tokens that has its first c tokens in common with some earlier prompt hits exactly
floor(min(c, L - 1) / B) blocks of B tokens: the earlier prompt had c tokens, so its blocks up to there were full, and
the last token is always computed. One walk finds c for every prompt; every block size is then arithmetic.

Knows nothing of finite pools.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from cache.prefix_tree import PrefixTree
from experiments.workload.base import Request

STEP = 64
"""Tokens per step of the walk where token ids are real; the rest is compared token by token."""
Lengths = npt.NDArray[np.int64]


class CommonPrefixes:
    """Lengths of prompts and of what each shares with any earlier one, in tokens."""

    def __init__(self, requests: Iterable[Request], granularity: int) -> None:
        """`granularity`: of the workload. Requests with different extra keys share nothing."""
        size = granularity if granularity > 1 else STEP
        tree, lengths, shared = PrefixTree(size), [], []
        for request in requests:
            tokens = request.tokens
            walk = tree.walk(tokens.segments(size), None, tokens.tail(size), request.extra_keys.encode())
            lengths.append(len(tokens))
            shared.append(walk.num_known * size + walk.num_shared)
        self.lengths: Lengths = np.array(lengths, dtype=np.int64)
        self.shared: Lengths = np.array(shared, dtype=np.int64)

    def hit_blocks(self, block_size: int) -> int:
        """Blocks an infinite cache hits."""
        return int((np.minimum(self.shared, self.lengths - 1) // block_size).sum())

    def full_blocks(self, block_size: int) -> int:
        """Full blocks of all prompts."""
        return int((self.lengths // block_size).sum())

    def held_blocks(self, block_size: int) -> int:
        """Blocks of all prompts, each with its partly filled last one."""
        return int((-(-self.lengths // block_size)).sum())

    @property
    def shared_tokens(self) -> int:
        """Tokens that need not be computed if blocks had one token."""
        return int(np.minimum(self.shared, self.lengths - 1).sum())
