"""Reuse below the block size: the block where two prompts part holds some tokens of both, and these can be copied.

    prompt      [ hit ][ hit ][ a b c x … ]        cached block   [ a b c d ]
                               └ copied ┘ └ computed

The sequence gets a block of its own, the matching part of the cached one is copied into it before anything is computed,
and that many tokens fewer are. Among the blocks that could follow the last hit, the one that shares most is a neighbour
in sorted order. Blocks that a trace only names are told apart whole, so nothing below their size is reused.

Knows nothing of pools or owners: that is `radix`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from cache.allocator.base import Match
from cache.run import Run
from cache.sequence import Sequence
from cache.tokens import TOKEN_BYTES, num_common_words


@dataclass(slots=True)
class Part:
    """The first `num_tokens` tokens of a block that follows a match: the block `place` of its run."""

    run: Run
    place: int
    num_tokens: int


def find_part(root: Run, seq: Sequence, match: Match, block_size: int) -> Part | None:
    """What else of the sequence is resident behind its match; the last token is always left to compute."""
    start = len(match.blocks) * block_size
    most = min(block_size, seq.num_tokens - 1 - start)
    if most < 1:
        return None
    wanted = seq.packed(start, start + most)
    run = match.path[-1] if match.path else root
    place = len(match.blocks) - run.depth
    if place < len(run.blocks):
        candidates = [(run, place)]
    else:
        candidates = [(child, 0) for child in _neighbours(run, wanted)]
    best: Part | None = None
    for run, place in candidates:
        if run.stride == block_size * TOKEN_BYTES:
            content = run.data[place * run.stride : (place + 1) * run.stride]
            count = num_common_words(wanted, content)
            if count > (best.num_tokens if best else 0):
                best = Part(run, place, count)
    return best


def _neighbours(run: Run, wanted: bytes) -> list[Run]:
    """The children whose first blocks come right before and right after `wanted` in sorted order."""
    if not run.children:
        return []
    if run.order is None:
        run.order = sorted(run.children)
    place = bisect_left(run.order, wanted)
    return [run.children[key] for key in run.order[max(place - 1, 0) : place + 1]]
