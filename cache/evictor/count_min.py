"""A count-min sketch of how often blocks were used of late, a whole request at a time.

Four rows of counters up to 15; a key has one cell in each, and its count is the lowest of them, never too low but for
halving. What a request uses is counted at once: every key is to stand one higher than before, and a cell becomes what
the highest of its keys asks for. Once the rows hold ten counts per block of the pool all of them are halved.

Where the cells of a resident block are is found once, when it enters: 32 bytes per block id.

Sources: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch", J. Algorithms 2005; the
conservative update of Estan and Varghese, SIGCOMM 2002; the ageing of TinyLFU, see `w_tinylfu`.

Knows nothing of queues or candidates.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

ROWS, MOST = 4, np.uint8(15)
SAMPLES_PER_BLOCK, FEWEST_BLOCKS = 10, 64
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: spreads neighbouring hashes over all bits."""
SHIFTS = np.array([[0], [11], [23], [37]], np.uint64)


class CountMin:
    """Counts by block id; the keys outlive the blocks, and so do their counts."""

    def __init__(self, counters: int) -> None:
        """`counters`: cells per row."""
        self._width = np.uint64(counters)
        self._first = np.arange(ROWS, dtype=np.uint64)[:, None] * self._width
        self._counts = np.zeros(ROWS * counters, np.uint8)
        self._cells = np.zeros((ROWS, 0), np.int64)
        self._samples = 0

    def enter(self, blocks: Sequence[int], keys: Sequence[Hashable], capacity: int) -> None:
        """These blocks hold these keys from now on and are used for the first time since; see `use`."""
        highest = max(blocks)
        if highest >= self._cells.shape[1]:
            more = np.zeros((ROWS, highest + 1), np.int64)
            self._cells = np.concatenate([self._cells, more], axis=1)  # at least doubled
        cells = np.fromiter(map(hash, keys), np.int64, len(keys)).view(np.uint64) * SPREAD >> SHIFTS
        cells %= self._width
        cells += self._first
        self._cells[:, blocks] = cells
        self._count(self._cells.take(blocks, axis=1), capacity)

    def use(self, blocks: Sequence[int], capacity: int) -> None:
        """A request uses these blocks, of different keys, of a pool of `capacity` blocks."""
        self._count(self._cells.take(blocks, axis=1), capacity)

    def counts(self, blocks: Sequence[int]) -> list[int]:
        """How often each block's key was used, roughly."""
        lowest: list[int] = self._counts.take(self._cells.take(blocks, axis=1)).min(axis=0).tolist()
        return lowest

    def _count(self, cells: NDArray[np.int64], capacity: int) -> None:
        before = self._counts.take(cells)
        after = np.maximum(before, np.minimum(before.min(axis=0) + np.uint8(1), MOST))
        np.maximum.at(self._counts, cells.ravel(), after.ravel())  # one shape: numpy 2.4 misreads what it broadcasts
        self._samples += cells.shape[1]
        if self._samples >= SAMPLES_PER_BLOCK * max(capacity, FEWEST_BLOCKS):
            self._samples //= 2
            self._counts >>= 1
