"""One sequence as the cache sees it: its token ids, its block table, and how far it is computed and cached.

    tokens      0 ────────── hit ────────── computed ────────── num_tokens
    blocks      [ cached, shared, immutable ][ own, mutable … ][ tail, partly filled ]
    freed by      whoever drops the last reference                the sequence alone

Knows nothing of where blocks come from; only the manager and its allocator write to it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable
from collections.abc import Sequence as Items
from typing import Any

from cache.access import Access
from cache.extra_keys import NO_EXTRA_KEYS, ExtraKeys
from cache.tokens import TOKEN_BYTES, Segment, Tail, TokenIds, little_endian, unpack


class Sequence:
    """A prompt and what was appended to it.

    `skip_lookup` computes everything although it may be cached (prompt log-probabilities need every position) but
    still caches the result.
    """

    __slots__ = (
        "_appended", "_block_size", "_contents", "_num_prompt", "_packed", "access", "allocated", "behind",
        "block_table", "extra_keys", "keys", "matched_by", "node", "num_computed_tokens", "num_followed_blocks",
        "num_hit_blocks", "num_immutable_blocks", "num_tokens", "partial_copy", "prompt", "root", "sealed",
        "skip_lookup", "trail",
    )  # fmt: skip

    def __init__(
        self,
        prompt: TokenIds,
        access: Access,
        extra_keys: ExtraKeys = NO_EXTRA_KEYS,
        skip_lookup: bool = False,
    ) -> None:
        self.prompt = prompt
        self.access = access
        self.extra_keys = extra_keys
        self.skip_lookup = skip_lookup
        self._appended: array[int] = array("i")
        self._block_size = 0
        self._contents: list[Hashable] = []
        self._num_prompt = len(prompt)
        self.num_tokens = self._num_prompt
        """Prompt and appended tokens."""
        self._packed: Segment | None = None
        self.allocated = False
        self.block_table: list[int] = []
        self.num_hit_blocks = 0
        self.num_immutable_blocks = 0
        self.num_computed_tokens = 0
        self.partial_copy: tuple[int, int] | None = None
        """(source, destination) block to copy before anything is computed: its beginning counts as computed. Copies of
        several sequences must happen in the order in which they were allocated."""
        self.sealed = False
        """True once nothing more of this sequence may be cached (its weights are gone, or its key is taken)."""
        self.root: bytes | None = None
        """The encoded extra keys under which it was allocated."""
        self.matched_by: Any = None
        """The manager that `root`, `keys` and `node` belong to."""
        self.keys: list[Hashable] = []
        """Chained keys of its full blocks, as far as somebody asked for them."""
        self.node: Any = None
        """The allocator's own mark of where the immutable part ends."""
        self.trail: Any = None
        """An observer's own mark of a place behind the first `num_followed_blocks` blocks."""
        self.num_followed_blocks = 0
        self.behind: Callable[[], None] | None = None
        """Where tokens it has slots for are told late (`CacheManager.put_off`): tells them."""

    def catch_up(self) -> None:
        """Have the tokens told that were put off, if any were."""
        behind, self.behind = self.behind, None
        if behind is not None:
            behind()

    def contents(self, block_size: int) -> list[Hashable]:
        """Contents of its full blocks; computed once, extended as it grows."""
        if self._block_size != block_size:
            self._cut_into(block_size)
        if not self._contents:
            self._contents = list(self.prompt.contents(block_size))
        for i in range(len(self._contents), self.num_tokens // block_size):
            self._contents.append(self.packed(i * block_size, (i + 1) * block_size))
        return self._contents

    def contents_between(self, block_size: int, start: int, stop: int) -> Items[Hashable]:
        """Contents of its full blocks `start` to `stop`; those of the others are not made for that."""
        if self._contents or stop * block_size > self._num_prompt:
            return self.contents(block_size)[start:stop]
        return self.prompt.contents(block_size, start, stop)

    def segments(self, block_size: int, start: int = 0) -> list[Segment]:
        """Packed contents of its full blocks from block `start` on or earlier: one segment, or two where what was
        appended is written otherwise than the prompt. O(bytes) at most, O(1) for a prompt asked again."""
        if self._block_size != block_size:
            self._cut_into(block_size)
        num_prompt, prompt = self._num_prompt // block_size, self._packed
        if prompt is None:
            prompt = self._packed = (*self.prompt.packed_contents(block_size), 0, num_prompt)
        if not self._appended:
            return [prompt]
        num_full, width = self.num_tokens // block_size, block_size * TOKEN_BYTES
        if start >= num_prompt or prompt[1] == width:
            return [(self.packed(start * block_size, num_full * block_size), width, start, num_full)]
        return [prompt, (self.packed(num_prompt * block_size, num_full * block_size), width, num_prompt, num_full)]

    def tail(self, block_size: int) -> Tail | None:
        """Its partly filled last block, None where there is none."""
        if not self._appended:
            return self.prompt.tail(block_size)
        rest = self.num_tokens % block_size
        return (
            Tail(self.packed(self.num_tokens - rest, self.num_tokens), rest, block_size * TOKEN_BYTES) if rest else None
        )

    def packed(self, start: int, stop: int) -> bytes:
        """Tokens `start` to `stop` as little-endian int32."""
        n = self._num_prompt
        if start >= n:
            return little_endian(self._appended[start - n : stop - n])
        return self.prompt.packed(start, min(stop, n)) + little_endian(self._appended[: max(stop - n, 0)])

    def token_ids(self) -> list[int]:
        """All its token ids as integers."""
        return unpack(self.packed(0, self.num_tokens))

    def token_ids_between(self, start: int, stop: int) -> list[int]:
        """Token ids of positions `start` to `stop`."""
        return unpack(self.packed(start, stop))

    def extend(self, token_ids: array[int]) -> None:
        """Add tokens (`tokens.int32`); the manager calls this once the slots for them are there."""
        self._appended.extend(token_ids)
        self.num_tokens += len(token_ids)

    def cut(self, num_tokens: int, block_size: int) -> None:
        """Forget the appended tokens from `num_tokens` on."""
        del self._appended[num_tokens - self._num_prompt :]
        self.num_tokens = num_tokens
        del self.keys[num_tokens // block_size :]
        del self._contents[num_tokens // block_size :]
        self.num_followed_blocks = min(self.num_followed_blocks, num_tokens // block_size)

    def _cut_into(self, block_size: int) -> None:
        self._block_size, self._contents, self._packed = block_size, [], None

    def twin(self, access: Access) -> Sequence:
        """A copy that shares nothing mutable with this one."""
        other = Sequence(self.prompt, access, self.extra_keys, self.skip_lookup)
        other._appended, other.num_tokens = self._appended[:], self.num_tokens
        other._block_size, other._contents, other._packed = self._block_size, self._contents[:], self._packed
        other.allocated = self.allocated
        other.num_hit_blocks = self.num_hit_blocks
        other.num_immutable_blocks = self.num_immutable_blocks
        other.num_computed_tokens = self.num_computed_tokens
        other.sealed = self.sealed
        other.root = self.root
        other.node = self.node
        other.matched_by = self.matched_by
        other.trail, other.num_followed_blocks = self.trail, self.num_followed_blocks
        other.block_table = self.block_table[:]
        other.keys = self.keys[:]
        return other
