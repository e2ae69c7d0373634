"""Two requests with one prefix at the same time: the second waits for what the first is just computing.

Knows nothing of budgets or of how long a wait may last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from cache.sequence import Sequence as CacheSequence


def worth_waiting_for(
    seq: CacheSequence, num_matched: int, computing: Iterable[CacheSequence], block_size: int
) -> bool:
    """Whether one of the sequences being computed will hold more of this one's prefix than the cache holds now.

    `num_matched`: tokens of `seq` that the cache holds. Costs O(log blocks) slice comparisons per sequence.
    """
    limit = (seq.num_tokens - 1) // block_size
    matched = num_matched // block_size
    if matched >= limit:
        return False
    own = seq.contents(block_size)
    for other in computing:
        if other.extra_keys == seq.extra_keys and not other.sealed:
            theirs = other.contents(block_size)
            # One comparison settles most cases: they must agree one block beyond what is cached.
            if theirs[: matched + 1] == own[: matched + 1] and common_prefix(theirs, own) > matched:
                return True
    return False


def common_prefix(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Number of leading blocks that are equal."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
