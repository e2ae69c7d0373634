"""Sequences that hold blocks: what can be asked of their tables, and whether the books balance.

Knows nothing of how blocks are found, taken or given back: that is the manager's.
"""

from __future__ import annotations

from collections import Counter

from cache.allocator.base import Allocator
from cache.errors import MisuseError, SequenceTooLarge
from cache.sequence import Sequence


class BlockTables:
    """Live sequences over one allocator."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.block_size = allocator.block_size
        self._live: dict[int, Sequence] = {}

    @property
    def live_sequences(self) -> list[Sequence]:
        """Sequences that hold blocks now."""
        self.catch_up()
        return list(self._live.values())

    @property
    def num_live(self) -> int:
        """Sequences that hold blocks."""
        return len(self._live)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def fits(self, seq: Sequence) -> bool:
        """Whether the whole pool could ever hold this sequence."""
        return self.num_blocks_for(seq.num_tokens) <= self.allocator.num_blocks

    def ref_count(self, block: int) -> int:
        """Sequences that own this block now; 0 for a free one and for one that is merely cached."""
        return self.allocator.ref_count(block)

    def num_tail_owners(self, seq: Sequence) -> int:
        """Sequences that own the partly filled last block of this one; 0 where its last block is full. Fast."""
        return self.allocator.num_owners(seq.block_table[-1]) if seq.num_tokens % self.block_size else 0

    def slot_mapping(self, seq: Sequence, start: int, stop: int) -> list[int]:
        """Slots (block id x block size + offset) of tokens `start` to `stop`.

        Raises MisuseError where the sequence has no slots there.
        """
        if not 0 <= start <= stop <= len(seq.block_table) * self.block_size:
            raise MisuseError(f"tokens {start}..{stop} have no slots: the sequence holds {len(seq.block_table)} blocks")
        size, slots = self.block_size, list[int]()
        for i in range(start // size, self.num_blocks_for(stop)):
            base, first = seq.block_table[i] * size, i * size
            slots.extend(range(base + max(start - first, 0), base + min(stop - first, size)))
        return slots

    def catch_up(self) -> None:
        """Have all tokens told that were put off."""
        for seq in list(self._live.values()):
            seq.catch_up()

    def check_integrity(self) -> None:
        """Raise AssertionError where tables, reference counts, index and evictor disagree. Scans everything."""
        self.catch_up()
        owned: Counter[int] = Counter()
        for seq in self._live.values():
            assert len(set(seq.block_table)) == len(seq.block_table), "a sequence owns one block twice"
            assert len(seq.block_table) == self.num_blocks_for(seq.num_tokens), "a table does not fit its tokens"
            assert seq.num_immutable_blocks * self.block_size <= seq.num_computed_tokens, "immutable but not computed"
            owned.update(seq.block_table)
        self.allocator.check_integrity(owned)

    # Inside

    def _must_fit(self, num_tokens: int) -> int:
        """The blocks that so many tokens need."""
        needed = -(-num_tokens // self.block_size)
        if needed > self.allocator.num_blocks:
            raise SequenceTooLarge(
                f"{num_tokens} tokens need {needed} blocks of {self.block_size}; "
                f"the whole pool has {self.allocator.num_blocks}"
            )
        return needed

    def _must_be_live(self, seq: Sequence) -> None:
        if self._live.get(id(seq)) is not seq:
            raise MisuseError("this sequence holds no blocks here: it was never allocated, or freed already")
        if seq.behind is not None:
            seq.catch_up()

    def _shares_tail(self, seq: Sequence) -> bool:
        return seq.num_tokens % self.block_size != 0 and self.allocator.is_shared(seq.block_table[-1])
