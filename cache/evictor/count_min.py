"""A count-min sketch of how often keys were used: what is remembered of those that have left, without their names.

Two rows of counters; a key has one in each, at its hash modulo the row's width, and its count is the lower of them:
never too low but for halving. The widths have no common divisor, so keys that meet in one row seldom meet in the other
(Chinese remainder theorem). Two rows cost half of what four do, and once a row of the four is full, two rows twice as
wide are right as often. A count that is written raises only the counters below it (conservative update).

Sources: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications",
J. Algorithms 2005; conservative update: Estan and Varghese, "New directions in traffic measurement", SIGCOMM 2002.
O(1) per key; most keys are new, and one look tells so. Of many keys at once the rows are gone through one after the
other, as arrays.

Knows nothing of blocks or of when counts age.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

MANY = 100
"""Keys from which on arrays are faster than a loop."""


class CountMin:
    """Counts up to 255."""

    def __init__(self, counters: int) -> None:
        """`counters`: the width of the narrower row."""
        self._widths = counters, counters + 1
        self._rows = [bytearray(width) for width in self._widths]
        self._arrays: list[NDArray[np.uint8]] = [np.frombuffer(row, dtype=np.uint8) for row in self._rows]
        """The same memory."""

    def write(self, keys: Sequence[Hashable], count: int) -> None:
        """Each of these keys was used so often, at least."""
        if len(keys) >= MANY:
            hashes = _hashes(keys)
            for row, width in zip(self._arrays, self._widths, strict=True):
                cells = hashes % width
                row[cells] = np.maximum(row[cells], np.uint8(count))
            return
        one, two = self._rows
        p, q = self._widths
        for mixed in map(hash, keys):
            if one[at := mixed % p] < count:
                one[at] = count
            if two[at := mixed % q] < count:
                two[at] = count

    def read(self, keys: Sequence[Hashable]) -> list[int]:
        """How often each of these keys was used, roughly."""
        if len(keys) >= MANY:
            return self._read_many(_hashes(keys))
        one, two = self._rows
        p, q = self._widths
        hashes = list(map(hash, keys))
        counts = [one[mixed % p] for mixed in hashes]
        if any(counts):
            for i, count in enumerate(counts):
                if count:
                    counts[i] = min(count, two[hashes[i] % q])
        return counts

    def halve(self) -> None:
        """Age all counts."""
        for row in self._arrays:
            row >>= 1

    def _read_many(self, hashes: NDArray[np.int64]) -> list[int]:
        counts = self._arrays[0][hashes % self._widths[0]]
        (known,) = counts.nonzero()
        if len(known):
            counts[known] = np.minimum(counts[known], self._arrays[1][hashes[known] % self._widths[1]])
        return counts.tolist()  # type: ignore[no-any-return]  # numpy says no more of lists


def _hashes(keys: Sequence[Hashable]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, keys), np.int64, len(keys))
