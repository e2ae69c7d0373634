"""Policies made of queues: every resident block stands in one of them, but only candidates may leave.

A block in use keeps its place, so a queue's *head* is its oldest block, in use or not, and its *first candidate* is the
oldest one that may go: whoever evicts takes the first candidate and passes over what is in use or has a child. Blocks
of one request enter deepest first, so that a chain leaves from its end.

The pool's size is not told to policies; `capacity` is the most blocks that were resident at once, which is the pool
minus unfinished blocks from the first eviction on. O(log n) per candidate, O(1) per touched block.

Knows nothing of which queue is for what.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush

from cache.access import Access
from cache.errors import PolicyError
from cache.evictor.base import Evictor

BLOCK_BITS = 32
BLOCK_MASK = (1 << BLOCK_BITS) - 1


class CandidateQueue:
    """One queue. `blocks` holds all its blocks, oldest first, with their positions."""

    def __init__(self) -> None:
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self._free: dict[int, int] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def num_candidates(self) -> int:
        """How many of its blocks may leave now."""
        return len(self._free)

    def offer(self, block: int) -> None:
        """The block may leave from now on."""
        entry = self.blocks[block] << BLOCK_BITS | block
        self._free[block] = entry
        if len(self._heap) > 2 * len(self._free) + 64:
            self._heap[:] = self._free.values()
            heapify(self._heap)
        else:
            heappush(self._heap, entry)

    def withdraw(self, block: int) -> None:
        """The block may not leave."""
        self._free.pop(block, None)

    def drop(self, block: int) -> None:
        """The block stands here no more."""
        del self.blocks[block]
        self._free.pop(block, None)

    def first_candidate(self) -> int:
        """The oldest block that may leave, or -1."""
        heap, free = self._heap, self._free
        while heap:
            block = heap[0] & BLOCK_MASK
            if free.get(block) == heap[0]:
                return block
            heappop(heap)
        return -1


class QueueEvictor(Evictor):
    """Subclasses say where a block enters (`admit`), what a hit does (`touch`) and who goes (`choose`)."""

    def __init__(self, num_queues: int) -> None:
        self.queues = [CandidateQueue() for _ in range(num_queues)]
        self.place: dict[int, CandidateQueue] = {}
        self.keys: dict[int, Hashable] = {}
        self.capacity = 0
        self._candidates: set[int] = set()
        self._clock = 0

    @abstractmethod
    def admit(self, key: Hashable, access: Access) -> CandidateQueue:
        """The queue a new block enters."""

    @abstractmethod
    def touch(self, block: int, access: Access) -> None:
        """A request hit the block, which is in use."""

    @abstractmethod
    def choose(self) -> int:
        """The candidate to evict, or -1 where there is none; `gone` is called for it afterwards."""

    def gone(self, block: int, key: Hashable) -> None:
        """The block was chosen and is about to leave its queue: the place to remember it."""
        return

    def enqueue(self, block: int, queue: CandidateQueue) -> None:
        """Put the block at the young end of a queue, out of the one it stands in."""
        old = self.place.get(block)
        if old is not None:
            old.drop(block)
        self._clock += 1
        queue.blocks[block] = self._clock
        self.place[block] = queue
        if block in self._candidates:
            queue.offer(block)

    def inserted(self, blocks: Sequence[int], depth: int, access: Access, keys: Sequence[Hashable]) -> None:
        self.must_be_new(self.place, blocks)
        for i in range(len(blocks) - 1, -1, -1):
            block, key = blocks[i], keys[i]
            self.keys[block] = key
            self.enqueue(block, self.admit(key, access))
        self.capacity = max(self.capacity, len(self.place))

    def accessed(self, blocks: Sequence[int], depth: int, access: Access) -> None:
        for block in reversed(blocks):
            self.touch(block, access)

    def evictable(self, block: int) -> None:
        if block in self._candidates:
            raise PolicyError(f"block {block} became evictable twice")
        self.place[block].offer(block)
        self._candidates.add(block)

    def pinned(self, block: int) -> None:
        if block not in self._candidates:
            raise PolicyError(f"block {block} was pinned but is no candidate")
        self._candidates.remove(block)
        self.place[block].withdraw(block)

    def removed(self, block: int) -> None:
        queue = self.place.pop(block, None)
        if queue is not None:
            queue.drop(block)
            del self.keys[block]
            self._candidates.discard(block)

    def victim(self) -> int:
        block = self.choose() if self._candidates else -1
        if block < 0:
            raise self.nothing_to_choose()
        self.gone(block, self.keys[block])
        self.removed(block)
        return block

    def candidates(self) -> set[int]:
        return set(self._candidates)
