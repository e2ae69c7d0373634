"""The only class a scheduler sees: sequences in, block tables and slots out.

One request's life, in token positions (B = block size):

    allocate   [0, hit) is cached and shared · [hit, num_tokens) gets own blocks      all or nothing
    promote    [0, computed) is computed: its full blocks become immutable and findable
    append     [num_tokens, num_tokens + n) gets slots; a shared tail is copied first
    put off    slots first, their tokens when somebody can tell the difference: `Sequence.catch_up`
    fork       a twin owns the same blocks once more
    free       every block loses one owner, exactly once

Knows nothing of tensors: copy-on-write answers with (source, destination) block ids for the kernels to copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from math import inf

from cache.access import Access
from cache.allocator.base import Allocator, Match
from cache.block_tables import BlockTables
from cache.errors import CacheInUse, MisuseError, OutOfBlocks, PolicyError
from cache.extra_keys import NO_EXTRA_KEYS
from cache.observer import Observer
from cache.sequence import Sequence
from cache.tokens import int32

BlockCopy = tuple[int, int]
"""(source block, destination block)"""


class CacheManager(BlockTables):
    """Block tables of live sequences over one allocator."""

    def __init__(self, allocator: Allocator, watermark: float = 0.0, weights_version: str = "") -> None:
        """`watermark`: share of the pool that `can_allocate` keeps free for sequences already running.

        Raises ValueError for a watermark outside [0, 1).
        """
        if not 0 <= watermark < 1:
            raise ValueError(f"watermark must lie in [0, 1), got {watermark}")
        super().__init__(allocator)
        self.weights_version = weights_version
        self._plain_root = NO_EXTRA_KEYS.encode(weights_version)
        self._reserve = 0 if allocator.num_blocks == inf else watermark * allocator.num_blocks
        self._last_match: tuple[Sequence, Match] | None = None

    def observe(self, observer: Observer) -> None:
        """From now on, tell `observer` what happens to prefixes. Raises CacheInUse unless the cache is cold."""
        if self._live or self.allocator.num_idle:
            raise CacheInUse("an observer must see everything from the start: free all sequences and reset() first")
        self.allocator.observe(observer)

    # Asking

    def can_allocate(self, seq: Sequence) -> bool:
        """Whether `allocate` would succeed and leave the watermark untouched. Only new blocks cost anything."""
        match = self._match(seq)
        return self._num_new(seq, match) + self._reserve <= self.allocator.num_available - match.num_idle

    def num_matched_tokens(self, seq: Sequence) -> int:
        """Tokens that `allocate` would find in the cache now. Pins nothing."""
        return len(self._match(seq).blocks) * self.block_size

    def can_append(self, seq: Sequence, count: int = 1) -> bool:
        """Whether `append` of so many tokens would succeed."""
        return self._num_appended(seq, count) <= self.allocator.num_available

    # Doing

    def allocate(self, seq: Sequence) -> int:
        """Blocks for all tokens of the sequence; the longest cached prefix is shared instead of taken.

        Returns the number of tokens that need not be computed: at most all but the last one; where `seq.partial_copy`
        is set, that block must be copied first. Raises SequenceTooLarge,
        OutOfBlocks, ValueError for an empty sequence, MisuseError for one that holds blocks; each changes nothing.
        """
        num_tokens = seq.num_tokens
        if num_tokens == 0:
            raise ValueError("an empty sequence cannot be allocated: a model needs at least one token")
        needed = self._must_fit(num_tokens)
        match = self._match(seq)
        num_hits = len(match.blocks)
        num_new, left = needed - num_hits, self.allocator.num_available - match.num_idle
        if num_new > left:
            raise OutOfBlocks(f"{num_new} blocks are needed beside the shared ones, {left} are free or evictable")
        self._last_match = None
        self.allocator.acquire(seq, match)
        self.allocator.observer.looked_up(seq, len(match.blocks), self._most_hits(seq))
        try:
            seq.block_table += self.allocator.take(num_new)
        except PolicyError:
            self.allocator.release(seq)
            self._forget(seq)
            raise
        finally:
            part = self.allocator.let_go_of_part() if match.part is not None else None
        seq.num_hit_blocks = num_hits
        seq.num_computed_tokens = num_hits * self.block_size
        if part is not None:
            source, num_shared = part
            seq.partial_copy = source, seq.block_table[num_hits]
            seq.num_computed_tokens += num_shared
        seq.allocated = True
        self._live[id(seq)] = seq
        return seq.num_computed_tokens

    def append(self, seq: Sequence, token_ids: Iterable[int]) -> list[BlockCopy]:
        """Slots for more tokens. Returns the block copies that must happen before anything is written to them.

        Raises OutOfBlocks, SequenceTooLarge, or ValueError for an id outside int32; each changes nothing.
        """
        self._must_be_live(seq)
        tokens, table, copies = int32(token_ids), seq.block_table, list[BlockCopy]()
        num_new = self._must_fit(seq.num_tokens + len(tokens)) - len(table)
        shared = bool(tokens) and self._shares_tail(seq)
        if num_new or shared:
            blocks = self._take(num_new + shared)
            if shared:
                self.allocator.release(seq, len(table) - 1)
                copies.append((table.pop(), blocks[0]))
            table += blocks
        seq.extend(tokens)
        return copies

    def append_computed(self, seq: Sequence, token_ids: Iterable[int]) -> None:
        """More tokens that have their K and V already, in slots that the sequence has: decoded since it was last told.

        The same as `append` and then `promote_to_immutable`, at the price of one. Raises MisuseError where there are no
        such slots, or others could write into them.
        """
        self._must_be_live(seq)
        tokens, table = int32(token_ids), seq.block_table
        num_tokens = seq.num_tokens + len(tokens)
        if num_tokens > len(table) * self.block_size or self._shares_tail(seq):
            raise MisuseError(
                f"{num_tokens} tokens have no slots of their own in {len(table)} blocks: append them first"
            )
        seq.extend(tokens)
        seq.num_computed_tokens = num_tokens
        self.allocator.promote(seq, num_tokens // self.block_size)

    def put_off(self, seq: Sequence, told: Callable[[], None]) -> bool:
        """Whether tokens that this sequence, full and computed to its last block, goes on with may be told late.

        If so, `append_each` gives it slots without tokens, block by block, and `told` is called once before anybody can
        tell the difference: it is to name all tokens computed since (`append_computed`).
        """
        self._must_be_live(seq)
        if not self.allocator.put_off(seq):
            return False
        seq.behind = told
        return True

    def append_each(self, grown: Items[tuple[Sequence, array[int] | None]]) -> list[BlockCopy]:
        """`append` for one after the other; where each just begins its next block, the blocks are taken all at once.

        None for tokens that are put off: a block for them.
        """
        size, live = self.block_size, self._live
        for seq, tokens in grown:
            if tokens is not None and not (
                len(seq.block_table) * size == seq.num_tokens and 0 < len(tokens) <= size and id(seq) in live
            ):
                return self._append_one_by_one(grown)
        for (seq, tokens), block in zip(grown, self.allocator.take_each(len(grown)), strict=True):
            seq.block_table.append(block)
            if tokens is not None:
                seq.extend(tokens)
        return []

    def truncate(self, seq: Sequence, num_tokens: int) -> None:
        """Take back appended tokens (rejected drafts) from position `num_tokens` on, and the blocks only they used.

        Raises MisuseError where that would cut into the prompt or into what is already immutable.
        """
        self._must_be_live(seq)
        floor = max(len(seq.prompt), seq.num_immutable_blocks * self.block_size)
        if not floor <= num_tokens <= seq.num_tokens:
            raise MisuseError(f"cannot cut to {num_tokens} tokens: only {floor}..{seq.num_tokens} can be taken back")
        keep = self.num_blocks_for(num_tokens)
        self.allocator.release(seq, keep)
        del seq.block_table[keep:]
        seq.cut(num_tokens, self.block_size)
        seq.num_computed_tokens = min(seq.num_computed_tokens, num_tokens)

    def promote_to_immutable(self, seq: Sequence, num_computed_tokens: int) -> None:
        """The first `num_computed_tokens` tokens have their K and V: full blocks among them can be found from now on.

        Only committed tokens may be named here. Raises MisuseError for a number that shrinks or exceeds the sequence.
        """
        self.mark_computed(seq, num_computed_tokens)
        self.allocator.promote(seq, num_computed_tokens // self.block_size)

    def mark_computed(self, seq: Sequence, num_computed_tokens: int) -> None:
        """The first `num_computed_tokens` tokens get their K and V from elsewhere (swapped in), not from the model.

        They can be found only after the next `promote_to_immutable`, when they have really come. Raises MisuseError as
        that does.
        """
        self._must_be_live(seq)
        if not seq.num_computed_tokens <= num_computed_tokens <= seq.num_tokens:
            raise MisuseError(
                f"{num_computed_tokens} computed tokens: must lie in {seq.num_computed_tokens}..{seq.num_tokens}"
            )
        seq.num_computed_tokens = num_computed_tokens

    def fork(self, seq: Sequence, access: Access | None = None) -> Sequence:
        """A twin that owns every block once more; whoever first writes to a shared tail gets a copy of it."""
        self._must_be_live(seq)
        twin = seq.twin(access or seq.access)
        self.allocator.share(twin)
        self._live[id(twin)] = twin
        return twin

    def free(self, seq: Sequence) -> None:
        """Give up every block, exactly once. Full computed blocks stay cached until room is needed."""
        self._must_be_live(seq)
        self.allocator.observer.released(seq)
        del self._live[id(seq)]
        self.allocator.release(seq)
        self._forget(seq)

    def set_weights_version(self, version: str) -> None:
        """New weights: nothing cached under another version can hit, and live sequences cache nothing more."""
        if version != self.weights_version:
            self.weights_version = version
            self._plain_root = NO_EXTRA_KEYS.encode(version)
            self._last_match = None
            self.catch_up()
            for seq in self._live.values():
                seq.sealed = True

    def reset(self) -> None:
        """Forget every cached block: a provably cold cache. Raises CacheInUse while sequences hold blocks."""
        if self._live:
            raise CacheInUse(f"the cache cannot be reset: {len(self._live)} sequences hold blocks; free them first")
        self._last_match = None
        self.allocator.clear()

    # Inside

    def _append_one_by_one(self, grown: Items[tuple[Sequence, array[int] | None]]) -> list[BlockCopy]:
        copies: list[BlockCopy] = []
        for seq, tokens in grown:
            if tokens is None:
                seq.block_table += self._take(1)
            else:
                copies += self.append(seq, tokens)
        return copies

    def _forget(self, seq: Sequence) -> None:
        seq.allocated = False
        seq.block_table = []
        seq.num_immutable_blocks = seq.num_computed_tokens = 0
        seq.node, seq.root, seq.sealed, seq.partial_copy = None, None, False, None
        seq.trail, seq.num_followed_blocks = None, 0

    def _match(self, seq: Sequence) -> Match:
        if seq.allocated:
            raise MisuseError("this sequence holds blocks already, here or in another cache")
        extra = seq.extra_keys
        root = self._plain_root if extra is NO_EXTRA_KEYS else extra.encode(self.weights_version)
        if self._last_match is not None:
            known, match = self._last_match
            if known is seq and match.version == self.allocator.version and seq.root == root:
                return match
        if seq.root != root or seq.matched_by is not self:
            seq.root, seq.node, seq.matched_by, seq.keys = root, None, self, []
        match = self.allocator.find(seq, self._most_hits(seq))
        self._last_match = seq, match
        return match

    def _most_hits(self, seq: Sequence) -> int:
        """The last token is always computed, so the block it lies in is no hit."""
        return 0 if seq.skip_lookup else (seq.num_tokens - 1) // self.block_size

    def _num_new(self, seq: Sequence, match: Match) -> int:
        return self.num_blocks_for(seq.num_tokens) - len(match.blocks)

    def _take(self, count: int) -> list[int]:
        if count > self.allocator.num_available:
            raise OutOfBlocks(f"{count} blocks are needed, {self.allocator.num_available} are free or evictable")
        return self.allocator.take(count)

    def _num_appended(self, seq: Sequence, count: int) -> int:
        grown = self.num_blocks_for(seq.num_tokens + count) - len(seq.block_table)
        return grown + (count > 0 and self._shares_tail(seq))
