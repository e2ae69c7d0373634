"""Sharing by a tree of runs: lookup, ownership and eviction cost per run of blocks, not per block.

    root (extra keys) ── [system prompt: 128 blocks] ─┬─ [question: 9 blocks]
                                                      └─ [question: 4 blocks] ── [answer, next question: 21 blocks]

The same hits, victims, block ids and counts as `hash_chain` with `leaf_only`, without hashes and so without
collisions: a prompt is compared with the contents themselves, one comparison of memory per run. A run is split where
its owners or its accesses begin to differ (`cache/run.py`); a chain that grows block by block grows its run.
What a sequence generates at the end of a run of its own may be put off until somebody comes there (`put_off`).

Source of the tree: Zheng et al., "SGLang: efficient execution of structured language model programs", NeurIPS 2024
(RadixAttention); Morrison, "PATRICIA", JACM 1968.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items

from cache.allocator.base import Match
from cache.allocator.growing_tree import GrowingTree
from cache.allocator.partial import Part, find_part
from cache.errors import MisuseError, PolicyError
from cache.evictor.base import Evictor
from cache.evictor.block_by_block import BlockByBlock
from cache.hashing.base import Hasher
from cache.observer import Observer
from cache.run import Run, num_common_blocks, walk
from cache.sequence import Sequence


class Radix(GrowingTree):
    """Blocks found by walking runs, kept while idle, evicted from the tails of childless runs.

    `hasher` makes the keys that policies with a memory of their own (ghosts, sketches) ask for; lookups need none.
    """

    evictor: Evictor

    def __init__(
        self,
        num_blocks: int | float,
        block_size: int,
        hasher: Hasher,
        evictor: Evictor,
        partial_reuse: bool = False,
    ) -> None:
        """`partial_reuse`: also use the beginning of the block where a prompt leaves the tree (`partial.py`)."""
        super().__init__(num_blocks, block_size, hasher, evictor.by_run() or BlockByBlock(evictor))
        self.evictor = evictor
        self.partial_reuse = partial_reuse
        self._held: Part | None = None
        self._evicted: list[tuple[int, int]] = []
        self._now = 0

    def find(self, seq: Sequence, limit: int) -> Match:
        match = self._walk(seq, limit)
        if self.partial_reuse and not seq.sealed and not seq.skip_lookup:
            root = self._roots.get(seq.root or b"")
            match.part = find_part(root, seq, match, self.block_size) if root is not None else None
        return match

    def _walk(self, seq: Sequence, limit: int) -> Match:
        path: list[Run] = []
        blocks: list[int] = []
        node = None if seq.sealed or not limit else self._roots.get(seq.root or b"")
        if node is None:
            return Match(blocks, 0, self.version, path)
        late = self._late
        i = num_idle = 0
        for data, stride, first, stop in seq.segments(self.block_size):
            if stop > limit:
                stop = limit
            while i < stop:
                offset = (i - first) * stride
                child = node.children.get(data[offset : offset + stride]) if node.children else None
                if child is None:
                    return Match(blocks, num_idle, self.version, path)
                if child in late:
                    late[child].catch_up()
                count = len(child.blocks)
                path.append(child)
                if count <= stop - i and data.startswith(child.data, offset):
                    blocks += child.blocks
                    node = child
                    i += count
                    if not child.refs:
                        num_idle += count
                    continue
                count = num_common_blocks(child, data, offset, min(count, stop - i))
                blocks += child.blocks[:count]
                return Match(blocks, num_idle if child.refs else num_idle + count, self.version, path)
        return Match(blocks, num_idle, self.version, path)

    def acquire(self, seq: Sequence, match: Match) -> None:
        now = self._now = seq.access.index
        self.version += 1
        path, num_hits = match.path, len(match.blocks)
        if match.part is not None and not num_hits:
            self._hold(seq, match)
        if not num_hits:
            return
        last = path[-1]
        if num_hits < last.depth + len(last.blocks):
            last = path[-1] = self._split(last, num_hits - last.depth)
        age = 0
        for run in path:
            if not run.refs:
                self._unidle(run)
            run.refs += 1
            age += (now - run.last_access) * len(run.blocks)
            run.last_access = now
        self.stats.hits += num_hits
        self.stats.hit_age += age
        self._policy.accessed(path, seq.access)
        seq.block_table = match.blocks
        seq.num_immutable_blocks = num_hits
        seq.node = last
        if match.part is not None:
            self._hold(seq, match)

    def let_go_of_part(self) -> tuple[int, int] | None:
        part, self._held = self._held, None
        if part is None:
            return None
        self.version += 1
        self._lose_owner(part.run)
        self.stats.partial_hits += 1
        self.stats.partial_hit_tokens += part.num_tokens
        return part.run.blocks[0], part.num_tokens

    def release(self, seq: Sequence, start: int = 0) -> None:
        self.version += 1
        first = seq.num_immutable_blocks
        mutable = seq.block_table[max(start, first) :]
        if mutable:
            mutable.reverse()
            self._drop(mutable)
        if start >= first:
            return
        if start:
            raise MisuseError(f"{first} blocks of this sequence are immutable: it cannot give up those from {start} on")
        run: Run | None = seq.node
        while run is not None and run.parent is not None:
            self._lose_owner(run)
            run = run.parent

    def evict(self, count: int) -> None:
        before = len(self._free)
        self._evicted.clear()
        order = self._policy.victims(count, self._trim)
        chosen = len(self._free) - before
        if chosen != count:
            raise PolicyError(f"{type(self.evictor).__name__} was asked for {count} victims and chose {chosen}")
        if order is not None:
            self._free[before:] = order
        self.version += 1
        self.observer.evicted(self._free[before:])

    def clear(self) -> None:
        for run in walk(self._roots):
            self._policy.removed(run)
        self._roots.clear()
        self._strays.clear()
        self._free_all()
        self.observer.cleared()

    def observe(self, observer: Observer) -> None:
        if observer.wants_decisions:  # a word on every block: the policy has to choose them one by one
            self._policy = BlockByBlock(self.evictor)
        super().observe(observer)

    def last_touches(self, blocks: Items[int]) -> Iterable[tuple[int, int]]:
        return self._evicted

    def _hold(self, seq: Sequence, match: Match) -> None:
        """Own the block whose beginning is to be copied until there is room for the copy; unless it is that room."""
        part: Part = match.part
        run = part.run  # the match is split off by now: its first block is the one
        needed = -(-seq.num_tokens // self.block_size) - len(match.blocks)
        if not run.refs and needed > self.num_available - 1:
            return
        if len(run.blocks) > 1:
            run = self._split(run, 1)
        if not run.refs:
            self._unidle(run)
        run.refs += 1
        run.last_access = seq.access.index
        self._policy.accessed([run], seq.access)
        self._held = Part(run, 0, part.num_tokens)

    def _trim(self, run: Run, count: int) -> Run | None:
        """The last blocks of a candidate are evicted. This is the one place where cached blocks are lost singly."""
        if run.refs or run.children is not None or not 0 < count <= len(run.blocks):
            raise PolicyError(f"{type(self.evictor).__name__} chose {count} blocks of a run that is no candidate")
        gone = run.trim(count)
        gone.reverse()
        self._free += gone
        self.num_idle -= count
        self.stats.evictions += count
        self.stats.evicted_age += (self._now - run.last_access) * count
        self._evicted.append((run.last_access, count))
        if self._strays:
            for block in gone:
                self._strays.pop(block, None)
        if run.blocks:
            return run
        parent = run.parent
        assert parent is not None
        parent.detach(run)
        if parent.children is None:
            if parent.parent is None:
                del self._roots[bytes(parent.data)]
            elif not parent.refs:
                return parent
        return None
