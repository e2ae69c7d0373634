"""Which prefixes are shared most: counted by where the match of a request ended.

    [ system prompt │ tools │ … ]        a match ends where prompts part: the end of what they share
             ended here 40 times            tokens saved = times · depth

A prefix is known by its depth and by its first and last tokens, not by block ids, which are used again after an
eviction. Memory is bounded: beyond `most` prefixes the ones that saved least are forgotten.

Knows nothing of screens, and counts a request once, at its longest match only.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

from cache.tokens import TokenIds

MOST = 4096
TOLD = 16
"""Tokens at either end that tell prefixes of one length apart."""


@dataclass(slots=True)
class Shared:
    """One shared prefix."""

    tokens: int
    requests: int
    tail: bytes
    """Its last tokens, packed."""

    @property
    def saved(self) -> int:
        """Tokens that were not computed because of it."""
        return self.tokens * self.requests


class SharedPrefixes:
    """Counts of match ends."""

    def __init__(self, block_size: int, most: int = MOST) -> None:
        self.block_size, self._most = block_size, most
        self._found: dict[tuple[int, bytes, bytes], Shared] = {}

    def note(self, prompt: TokenIds, num_blocks: int, times: int = 1) -> None:
        """The first `num_blocks` blocks of this prompt were found in the cache; it stands for `times` requests."""
        if not num_blocks:
            return
        end = num_blocks * self.block_size
        key = (end, prompt.packed(0, min(TOLD, end)), prompt.packed(max(0, end - TOLD), end))
        known = self._found.get(key)
        if known is not None:
            known.requests += times
            return
        if len(self._found) >= self._most:
            self._forget()
        self._found[key] = Shared(end, times, key[2])

    def top(self, count: int) -> list[Shared]:
        """Those that saved most."""
        return nlargest(count, self._found.values(), key=lambda shared: shared.saved)

    def _forget(self) -> None:
        kept = nlargest(self._most // 2, self._found.items(), key=lambda item: item[1].saved)
        self._found = dict(kept)
