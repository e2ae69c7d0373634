"""Sequences by their token ids, and what ends most of them: computed, then released."""

from __future__ import annotations

from cache.access import Access
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens


def sequence(tokens: object, index: int = 0, **options: object) -> Sequence:
    return Sequence(PackedTokens.of(tokens), Access(index), **options)  # type: ignore[arg-type]


def finish(cache: CacheManager, seq: Sequence) -> None:
    cache.promote_to_immutable(seq, seq.num_tokens)
    cache.free(seq)
