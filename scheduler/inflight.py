"""Two requests with one prefix at the same time: the second waits for what the first is just computing.

Knows nothing of budgets or of how long a wait may last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cache.sequence import Sequence as CacheSequence
from cache.tokens import Segment


def worth_waiting_for(
    seq: CacheSequence, num_matched: int, computing: Iterable[CacheSequence], block_size: int
) -> bool:
    """Whether one of the sequences being computed will hold more of this one's prefix than the cache holds now.

    `num_matched`: tokens of `seq` that the cache holds. Costs a comparison of memory per sequence, mostly of one block.
    """
    limit = (seq.num_tokens - 1) // block_size
    matched = num_matched // block_size
    if matched >= limit:
        return False
    own = seq.segments(block_size)
    return any(
        other.extra_keys == seq.extra_keys
        and not other.sealed
        and begin_alike(own, other.segments(block_size), matched + 1)
        for other in computing
    )


def begin_alike(a: Sequence[Segment], b: Sequence[Segment], num_blocks: int) -> bool:
    """Whether two sequences have so many leading blocks, and the same ones. The last of them is looked at first."""
    return _alike(a, b, num_blocks - 1, num_blocks) and _alike(a, b, 0, num_blocks - 1)


def _alike(a: Sequence[Segment], b: Sequence[Segment], start: int, stop: int) -> bool:
    for data, stride, first, end in a:
        for other, other_stride, other_first, other_end in b:
            low, high = max(start, first, other_first), min(stop, end, other_end)
            if low < high:
                if stride != other_stride:
                    return False
                mine = data[(low - first) * stride : (high - first) * stride]
                if not other.startswith(mine, (low - other_first) * stride):
                    return False
    return stop <= min(a[-1][3], b[-1][3])
