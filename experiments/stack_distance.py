"""The exact LRU hit rate of every pool size from one walk over the requests: stack distances of prefixes.

Why it can be exact. Under LRU with "deeper first" on a tie, victims go in one fixed order: blocks sorted by (last
request, depth), whatever the pool. A child is never touched without its parent, so that order never takes a parent
before its child, and "leaves only" changes nothing. Hence a pool always holds the top K of one stack that all pools
share, with K = min(everything seen, N - d): d is 1 where the latest request took a block for itself alone (its partly
filled tail, or the recomputed last block of a wholly resident prompt) and gave it back, so that one block is free.
Let a request be L tokens, n = floor(L/B) full blocks, and P the place of its last full block in the stack, if known:

    L not a multiple of B                    d = 1 for every N    (the tail)
    L a multiple of B, not wholly known      d = 0 for every N    (all its blocks stay)
    L a multiple of B, wholly known          d = 1 for N > P      (its last block is computed beside the resident one)
                                             d = 0 for N <= P     (for N = P that block itself is the victim)

A block at place p of the stack hits in pools of at least p + d(p) blocks, unless it holds the last token. Blocks
touched last by one request are neighbours in the stack, so places come per run of blocks: a Fenwick tree over requests
counts the blocks touched later. O(log requests) per run.

A request larger than the pool touches nothing, so pools smaller than the largest request see different stacks: the
curve says from which size on it holds (`valid_from`), and smaller pools need a curve of the requests that fit.

Source: Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", IBM Systems Journal 1970;
Bennett and Kruskal, "LRU stack processing", IBM Journal of Research and Development 1975.

Knows nothing of workloads, plots or other policies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cache.prefix_tree import PrefixTree
from cache.tokens import TokenIds

EVERY = 2**62
"""A threshold beyond every pool."""


class LruCurve:
    """Feed it the requests in order; then ask for hit blocks at any pool size."""

    def __init__(self, block_size: int, num_requests: int) -> None:
        """`num_requests`: at most so many will be observed."""
        self.block_size = block_size
        self.prompt_tokens = 0
        self.full_blocks = 0
        self.ceiling_blocks = 0
        self.valid_from = 0
        """Pools of fewer blocks would refuse a request that was observed."""
        self._tree = PrefixTree(block_size)
        self._later = Fenwick(num_requests)
        self._total = 0
        self._now = 0
        self._threshold = 0
        """d is 1 in pools larger than this."""
        self._starts: list[int] = []
        self._stops: list[int] = []

    def observe(self, tokens: TokenIds, root: bytes = b"") -> None:
        """One served request: its tokens and its encoded extra keys."""
        size, now, num_tokens = self.block_size, self._now, len(tokens)
        limit, full = (num_tokens - 1) // size, num_tokens // size
        walk = self._tree.walk(tokens.segments(size), now, root=root)
        depth, place, request = 0, 0, -1
        for run, last in walk.runs:
            count = run.length
            if last != request:  # else the run goes on where the one before ended
                request, place = last, self._total - self._later.up_to(last)
            self._note(place + 1, place + 1 + min(count, limit - depth))
            place += count
            depth += count
        if num_tokens % size:
            self._threshold = 0
        else:
            self._threshold = place if walk.num_known == full else EVERY
        for run, last in walk.runs:
            self._later.add(last, -run.length)
        self._later.add(now, full)
        self._total += full - walk.num_known
        self._now += 1
        self.prompt_tokens += num_tokens
        self.full_blocks += full
        self.ceiling_blocks += min(walk.num_known, limit)
        self.valid_from = max(self.valid_from, -(-num_tokens // size))

    def hit_blocks(self) -> npt.NDArray[np.int64]:
        """Hit blocks of a pool of N blocks at index N, up to the smallest pool that never evicts a block asked again.

        Larger pools hit what the last one hits.
        """
        last = max(self._stops, default=1)
        change = np.zeros(last + 1, dtype=np.int64)
        np.add.at(change, self._starts, 1)
        np.add.at(change, self._stops, -1)
        return np.cumsum(np.cumsum(change))

    def hits_at(self, num_blocks: float) -> int:
        """Hit blocks of one pool. Raises ValueError for one that would have refused a request."""
        if num_blocks < self.valid_from:
            raise ValueError(f"a pool of {num_blocks} blocks refuses a request of {self.valid_from}: leave it out")
        curve = self.hit_blocks()
        return int(curve[int(min(num_blocks, len(curve) - 1))])

    def _note(self, start: int, stop: int) -> None:
        """Places `start` to `stop` of the stack were asked for: each hits in pools of at least place + d."""
        if start >= stop:
            return
        split = min(max(self._threshold + 1, start), stop)
        if start < split:
            self._starts.append(start)
            self._stops.append(split)
        if split < stop:
            self._starts.append(split + 1)
            self._stops.append(stop + 1)


class Fenwick:
    """Sums of a prefix of numbers that change, in O(log n)."""

    def __init__(self, size: int) -> None:
        self._sums = [0] * (size + 1)

    def add(self, index: int, amount: int) -> None:
        """Add to number `index`."""
        sums, i = self._sums, index + 1
        while i < len(sums):
            sums[i] += amount
            i += i & -i

    def up_to(self, index: int) -> int:
        """The sum of numbers 0 to `index`."""
        sums, total, i = self._sums, 0, index + 1
        while i:
            total += sums[i]
            i &= i - 1
        return total
