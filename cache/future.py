"""The future of a trace, for offline policies: which request can hit each prefix next.

The last block of a prompt that ends on a block boundary is computed even where it is resident, so that is no use of it.

Prefixes are numbered exactly (parent number, content), not hashed. Memory: 8 bytes per block of the whole trace while
it is built, 4 afterwards.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Sequence

NEVER = 2**31 - 1


class Future:
    """`next_use(index, depth, count)`: for request `index`, when the prefixes at these depths can be hit again."""

    def __init__(self, requests: Iterable[tuple[bytes, Sequence[Hashable], int] | None]) -> None:
        """`requests`: per request its encoded extra keys, the contents of its full blocks and how many of them may hit,
        in replay order; None for a request that will be refused and so touches nothing."""
        offsets, may_hit = array("q", [0]), array("i")
        prefixes = array("i")
        numbers: dict[tuple[Hashable, Hashable], int] = {}
        for request in requests:
            limit = 0
            if request is not None:
                parent: Hashable
                parent, contents, limit = request
                for content in contents:
                    parent = numbers.setdefault((parent, content), len(numbers))
                    prefixes.append(parent)
            offsets.append(len(prefixes))
            may_hit.append(limit)

        upcoming = array("i", [NEVER]) * len(numbers)
        for index in range(len(offsets) - 2, -1, -1):
            start = offsets[index]
            for i in range(start, offsets[index + 1]):
                prefix = prefixes[i]
                prefixes[i] = upcoming[prefix]
                if i - start < may_hit[index]:
                    upcoming[prefix] = index
        self._offsets = offsets
        self._next_use = prefixes

    def next_use(self, index: int, depth: int, count: int) -> Sequence[int]:
        """Request indices (or NEVER) for `count` prefixes of request `index`, from `depth` on."""
        start = self._offsets[index] + depth
        return self._next_use[start : start + count]
