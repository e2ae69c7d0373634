"""What every allocator does with a pool of equal blocks, and what it may do on top: find and keep shared prefixes.

    free ──take──> mutable, one owner ──promote──> immutable, ref_count owners ──release──> idle (cached, 0 owners)
     ^                    │ release                                                         │        ^
     └────────────────────┴───────────────────────── evict <────────────────────────────────┘        └─ acquire

At any time: free + idle + in use = num_blocks. Work is O(1) per block touched; nothing ever scans the pool.

Knows nothing of slots, copy-on-write or how many tokens a sequence has: that is the manager's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from math import inf

from cache.errors import MisuseError, OutOfBlocks
from cache.evictor.base import Evictor
from cache.observer import NOBODY, Observer
from cache.sequence import Sequence


@dataclass(slots=True)
class Match:
    """The longest resident prefix of a sequence: nothing is held yet."""

    blocks: list[int]
    num_idle: int
    """How many of them nobody holds: taking them leaves so many fewer to evict."""
    version: int
    """Which state of the cache it was read from."""


@dataclass(slots=True)
class CacheStats:
    """Running totals; ages are in requests since the last access."""

    evictions: int = 0
    evicted_age: int = 0
    hits: int = 0
    hit_age: int = 0


class Allocator(ABC):
    """A pool of `num_blocks` blocks (or `inf`), ids 0, 1, 2 …"""

    evictor: Evictor | None = None
    observer: Observer = NOBODY
    """Told what is promoted, evicted and cleared; the manager attaches it and tells it of lookups."""

    def __init__(self, num_blocks: int | float, block_size: int) -> None:
        """`block_size`: tokens per block. Raises ValueError unless both are positive integers (or `num_blocks` inf)."""
        if block_size != int(block_size) or block_size < 1:
            raise ValueError(f"block_size must be a positive integer, got {block_size}")
        if num_blocks != inf and (num_blocks != num_blocks // 1 or num_blocks < 1):
            raise ValueError(f"num_blocks must be a positive integer or inf, got {num_blocks}")
        self.num_blocks = num_blocks if num_blocks == inf else int(num_blocks)
        self.block_size = int(block_size)
        self.num_idle = 0
        self.version = 0
        self.stats = CacheStats()
        self._refs: list[int] = []
        self._free: list[int] = []

    @property
    def num_free(self) -> int | float:
        """Blocks that hold nothing."""
        return self.num_blocks - len(self._refs) + len(self._free)

    @property
    def num_available(self) -> int | float:
        """Blocks that could be taken now: free ones and idle ones."""
        return self.num_free + self.num_idle

    @property
    def num_in_use(self) -> int:
        """Blocks with at least one owner."""
        return len(self._refs) - len(self._free) - self.num_idle

    def ref_count(self, block: int) -> int:
        """Owners of a block; 0 for a free or idle one."""
        return self._refs[block] if block < len(self._refs) else 0

    def take(self, count: int) -> list[int]:
        """`count` mutable blocks with one owner each; free ones first, then victims. All or nothing.

        Raises OutOfBlocks where fewer are available.
        """
        if count > self.num_available:
            raise OutOfBlocks(f"{count} blocks are needed, {self.num_free} are free and {self.num_idle} evictable")
        short = count - self.num_free
        if short > 0:
            self.evict(int(short))
        free, refs = self._free, self._refs
        recycled = min(count, len(free))
        blocks = free[len(free) - recycled :]
        del free[len(free) - recycled :]
        for block in blocks:
            refs[block] = 1
        if recycled < count:
            first = len(refs)
            refs.extend([1] * (count - recycled))
            self._grow(count - recycled)
            blocks.extend(range(first, first + count - recycled))
        return blocks

    def share(self, blocks: Items[int]) -> None:
        """One more owner for blocks already in use."""
        refs = self._refs
        for block in blocks:
            refs[block] += 1

    @abstractmethod
    def find(self, seq: Sequence, limit: int) -> Match:
        """The longest resident prefix of at most `limit` blocks. Changes nothing."""

    @abstractmethod
    def acquire(self, seq: Sequence, match: Match) -> None:
        """Own the matched blocks; they become the start of the sequence's block table."""

    @abstractmethod
    def promote(self, seq: Sequence, num_full: int) -> None:
        """The first `num_full` blocks of the sequence are full and computed: make them immutable and findable.

        Where a key is cached already, the sequence's own block is given back and the cached one takes its place.
        """

    @abstractmethod
    def release(self, blocks: Items[int]) -> None:
        """One owner fewer for each of these blocks, which lie along one chain, front to back."""

    @abstractmethod
    def evict(self, count: int) -> None:
        """Turn `count` idle blocks into free ones; the caller has made sure that there are as many."""

    @abstractmethod
    def clear(self) -> None:
        """Forget every cached block; only called when none is in use."""

    def is_cached(self, block: int) -> bool:
        """Whether a lookup could find this block."""
        return False

    def state(self, block: int) -> str:
        """`free`, `mutable` (owned, not findable), `immutable` (owned, findable) or `idle` (findable, no owner)."""
        if self.is_cached(block):
            return "immutable" if self.ref_count(block) else "idle"
        return "mutable" if self.ref_count(block) else "free"

    @property
    def closed_under_prefix(self) -> bool:
        """Whether a findable block's ancestors are always findable too."""
        return True

    def last_accesses(self, blocks: Items[int]) -> Iterable[int]:
        """For blocks just evicted, the index of the last request that touched each, in any order."""
        return ()

    def count_unreachable(self) -> int:
        """Cached blocks that no lookup can reach since an ancestor was evicted. Scans the pool."""
        return 0

    def check_integrity(self, owned: dict[int, int]) -> None:
        """Raise AssertionError where the books do not balance. `owned`: block → owners, as the manager counts them."""
        assert len(set(self._free)) == len(self._free), "a block is free twice"
        for block, refs in enumerate(self._refs):
            assert refs == owned.get(block, 0), f"block {block} counts {refs} owners, has {owned.get(block, 0)}"
        assert not [b for b in self._free if self._refs[b]], "a free block has owners"
        assert self.num_in_use == len(owned), "free + idle + in use do not add up"
        assert len(self._refs) <= self.num_blocks, "more blocks than the pool has"

    def _grow(self, count: int) -> None:
        """`count` blocks are used for the first time: make room for what is kept per block."""

    def _released_too_often(self, block: int) -> MisuseError:
        return MisuseError(f"block {block} was released more often than it was taken")
