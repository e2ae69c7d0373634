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
from typing import Any

from cache.errors import OutOfBlocks
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
    path: Any = None
    """The allocator's own way back to where the match ends."""
    part: Any = None
    """The allocator's own mark of a cached block that begins as the sequence goes on, where it looks for one."""


@dataclass(slots=True)
class CacheStats:
    """Running totals; ages are in requests since the last access."""

    evictions: int = 0
    evicted_age: int = 0
    hits: int = 0
    hit_age: int = 0
    partial_hits: int = 0
    """Allocations that copied the beginning of a cached block, and the tokens they need not compute for that."""
    partial_hit_tokens: int = 0


class Allocator(ABC):
    """A pool of `num_blocks` blocks (or `inf`), ids 0, 1, 2 …"""

    evictor: Evictor | None = None
    partial_reuse: bool = False
    """Whether it looks for reuse below the block size."""
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
        self._free: list[int] = []
        self._num_touched = 0
        """Blocks that were ever taken: ids from here on are free too."""

    @property
    def num_free(self) -> int | float:
        """Blocks that hold nothing."""
        return self.num_blocks - self._num_touched + len(self._free)

    @property
    def num_available(self) -> int | float:
        """Blocks that could be taken now: free ones and idle ones."""
        return self.num_blocks - self._num_touched + len(self._free) + self.num_idle

    @property
    def num_in_use(self) -> int:
        """Blocks with at least one owner."""
        return self._num_touched - len(self._free) - self.num_idle

    @abstractmethod
    def ref_count(self, block: int) -> int:
        """Owners of a block; 0 for a free or idle one. For inspection, may be slow."""

    @abstractmethod
    def is_shared(self, block: int) -> bool:
        """Whether writing this block would show elsewhere: it has other owners, or it is cached."""

    def num_owners(self, block: int) -> int:
        """Owners of a mutable block. Fast, for a scheduler that asks in every step."""
        return self.ref_count(block)

    @abstractmethod
    def share(self, seq: Sequence) -> None:
        """One more owner for all blocks of a sequence that holds them."""

    def take(self, count: int) -> list[int]:
        """`count` mutable blocks with one owner each; free ones first, then victims. All or nothing.

        Raises OutOfBlocks where fewer are available.
        """
        if count > self.num_available:
            raise OutOfBlocks(f"{count} blocks are needed, {self.num_free} are free and {self.num_idle} evictable")
        short = count - self.num_free
        if short > 0:
            self.evict(int(short))
        free = self._free
        kept = max(len(free) - count, 0)
        blocks = free[kept:]
        del free[kept:]
        if len(blocks) < count:
            first = self._num_touched
            self._num_touched = stop = first + count - len(blocks)
            blocks += range(first, stop)
        return blocks

    def take_each(self, count: int) -> list[int]:
        """The blocks that `count` calls of `take(1)` give, in that order."""
        return [self.take(1)[0] for _ in range(count)]

    @abstractmethod
    def find(self, seq: Sequence, limit: int) -> Match:
        """The longest resident prefix of at most `limit` blocks. Changes nothing."""

    @abstractmethod
    def acquire(self, seq: Sequence, match: Match) -> None:
        """Own the matched blocks; they become the start of the sequence's block table. The match is used up by that."""

    def let_go_of_part(self) -> tuple[int, int] | None:
        """After `take`: the block whose beginning the sequence acquired last can use, and how many tokens of it.

        Until now the block was held, so that it was not evicted to make room for its own copy.
        """
        return None

    @abstractmethod
    def promote(self, seq: Sequence, num_full: int) -> None:
        """The first `num_full` blocks of the sequence are full and computed: make them immutable and findable.

        Where a key is cached already, the sequence's own block is given back and the cached one takes its place.
        """

    def put_off(self, seq: Sequence) -> bool:
        """Whether nobody can tell if the blocks this sequence fills from now on are promoted when they are full, or by
        `seq.catch_up`, which the allocator calls before anything depends on it. If not, promote them."""
        return False

    @abstractmethod
    def release(self, seq: Sequence, start: int = 0) -> None:
        """One owner fewer for the blocks of a sequence's table from position `start` on: all of them, or mutable ones.

        The table itself stays as it is.
        """

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

    def observe(self, observer: Observer) -> None:
        """From now on, tell `observer` what is promoted, evicted and cleared; only called on a cold cache."""
        self.observer = observer
        observer.attached(self)
        if self.evictor is not None:
            self.evictor.tell = observer.decided if observer.wants_decisions else None

    @property
    def closed_under_prefix(self) -> bool:
        """Whether a findable block's ancestors are always findable too."""
        return True

    def last_touches(self, blocks: Items[int]) -> Iterable[tuple[int, int]]:
        """Of blocks just evicted, in runs, in any order: (index of the last request that touched them, how many)."""
        return ()

    def count_unreachable(self) -> int:
        """Cached blocks that no lookup can reach since an ancestor was evicted. Scans the pool."""
        return 0

    def check_integrity(self, owned: dict[int, int]) -> None:
        """Raise AssertionError where the books do not balance. `owned`: block → owners, as the manager counts them."""
        assert len(set(self._free)) == len(self._free), "a block is free twice"
        assert self.num_in_use == len(owned), "free + idle + in use do not add up"
        assert self._num_touched <= self.num_blocks, "more blocks than the pool has"
        assert all(0 <= block < self._num_touched for block in self._free), "a free block was never taken"
        for block in range(self._num_touched):
            refs = self.ref_count(block)
            assert refs == owned.get(block, 0), f"block {block} counts {refs} owners, has {owned.get(block, 0)}"
        assert not [b for b in self._free if b in owned], "a free block has owners"

    def _free_all(self) -> None:
        """Every block is free, and the order in which they are handed out tells nothing of the past."""
        self._free[:] = range(self._num_touched - 1, -1, -1)
        self.num_idle = 0
        self.version += 1
