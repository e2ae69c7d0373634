"""A count-min sketch of how often keys were used: what is remembered of those that have left, without their names.

Four rows of counters; a key has one cell in each, and its count is the lowest of them: never too low but for halving.
A count that is written raises only the cells that are below it (conservative update). While somebody counts a key
itself there is no need to write; so counts are written once, when a key leaves, many keys at a time, and not before
somebody reads.

Sources: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications",
J. Algorithms 2005; conservative update: Estan and Varghese, "New directions in traffic measurement", SIGCOMM 2002.

Knows nothing of blocks or of when counts age.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

ROWS = 4
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: spreads neighbouring hashes over all bits."""
SHIFTS = np.array([[0], [11], [23], [37]], np.uint64)
MOST_WAITING = 4096
"""Keys that may wait to be written."""


class CountMin:
    """Counts up to 255."""

    def __init__(self, counters: int) -> None:
        """`counters`: cells per row."""
        self._width = np.uint64(counters)
        self._first = np.arange(ROWS, dtype=np.uint64)[:, None] * self._width
        self._counts = np.zeros(ROWS * counters, np.uint8)
        self._keys: list[Hashable] = []
        self._written: list[int] = []
        """Keys that wait to be written, and their counts."""

    def write(self, keys: Sequence[Hashable], count: int) -> None:
        """Each of these keys was used so often, at least."""
        self._keys += keys
        self._written += [count] * len(keys)
        if len(self._keys) > MOST_WAITING:
            self.read([])

    def read(self, keys: Sequence[Hashable]) -> list[int]:
        """How often each of these keys was used, roughly."""
        num_waiting = len(self._keys)
        cells = self._cells([*self._keys, *keys])
        if num_waiting:
            raised, counts = cells[:, :num_waiting].ravel(), np.array(self._written * ROWS, np.uint8)
            np.maximum.at(self._counts, raised, counts)  # both of one shape: numpy 2.4 misreads what it must broadcast
            self._keys.clear()
            self._written.clear()
        lowest: list[int] = np.minimum.reduce(self._counts.take(cells[:, num_waiting:])).tolist()
        return lowest

    def halve(self) -> None:
        """Age all counts."""
        self.read([])
        self._counts >>= 1

    def _cells(self, keys: Sequence[Hashable]) -> NDArray[np.int64]:
        """[ROWS, keys]: where the counters of each key are."""
        cells = np.fromiter(map(hash, keys), np.int64, len(keys)).view(np.uint64) * SPREAD >> SHIFTS
        cells %= self._width
        cells += self._first
        return cells.view(np.int64)
