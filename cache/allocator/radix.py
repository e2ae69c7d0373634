"""Sharing by a tree of runs: lookup, ownership and eviction cost per run of blocks, not per block.

    root (extra keys) ── [system prompt: 128 blocks] ─┬─ [question: 9 blocks]
                                                      └─ [question: 4 blocks] ── [answer, next question: 21 blocks]

The same hits, victims, block ids and counts as `hash_chain` with `leaf_only`, without hashes and so without
collisions: a prompt is compared with the contents themselves, one comparison of memory per run. A run is split where
its owners or its accesses begin to differ (`cache/run.py`); a chain that grows block by block grows its run.

A mutable block has one owner unless a fork shares it; only the exceptions are counted. When such a block becomes
immutable, the owners that have not come that far yet hold it as a *stray*: by its id, not by their place in the tree.

Source of the tree: Zheng et al., "SGLang: efficient execution of structured language model programs", NeurIPS 2024
(RadixAttention); Morrison, "PATRICIA", JACM 1968.
"""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Items
from itertools import groupby

from cache.allocator.base import Allocator, Match
from cache.allocator.partial import Part, find_part
from cache.errors import MisuseError, PolicyError
from cache.evictor.base import Evictor
from cache.evictor.block_by_block import BlockByBlock
from cache.evictor.runs import RunPolicy
from cache.hashing.base import Hasher
from cache.run import Run, check_tree, num_common_blocks, walk
from cache.sequence import Sequence


class Radix(Allocator):
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
        super().__init__(num_blocks, block_size)
        self.partial_reuse = partial_reuse
        self._held: Part | None = None
        self.hasher = hasher
        self.evictor = evictor
        self._policy: RunPolicy = evictor.by_run() or BlockByBlock(evictor)
        self._roots: dict[bytes, Run] = {}
        self._more_owners: dict[int, int] = {}
        """Mutable blocks with more than one owner → how many more."""
        self._strays: dict[int, Run] = {}
        """Immutable blocks that an owner may hold without having come so far in the tree."""
        self._now = 0
        self._seen: tuple[tuple[int, int, int], dict[int, int], dict[int, int]] = ((-1, 0, 0), {}, {})

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
        i = num_idle = 0
        for data, stride, first, stop in seq.segments(self.block_size):
            if stop > limit:
                stop = limit
            while i < stop:
                offset = (i - first) * stride
                child = node.children.get(data[offset : offset + stride]) if node.children else None
                if child is None:
                    return Match(blocks, num_idle, self.version, path)
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
        if not num_hits:
            self._hold(seq, match)
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

    def promote(self, seq: Sequence, num_full: int) -> None:
        i = seq.num_immutable_blocks
        if seq.sealed or i >= num_full:
            return
        node: Run = seq.node or self._root(seq)
        duplicates: list[Run] = []
        for data, stride, first, stop in seq.segments(self.block_size, i):
            if stop > num_full:
                stop = num_full
            while i < stop:
                offset = (i - first) * stride
                child = node.children.get(data[offset : offset + stride]) if node.children else None
                if child is None:
                    self._tell_accessed(seq, duplicates)
                    node = self._insert(seq, node, data[offset : offset + (stop - i) * stride], stride, i, stop)
                    i = stop
                    break
                count = len(child.blocks)
                if count > stop - i or not data.startswith(child.data, offset):
                    count = num_common_blocks(child, data, offset, min(count, stop - i))
                    if count < len(child.blocks):
                        child = self._split(child, count)
                if child.blocks[0] != seq.block_table[i]:
                    self._replace_duplicates(seq, child, i)
                    duplicates.append(child)
                else:
                    self._tell_accessed(seq, duplicates)
                i += count
                node = child
        self._tell_accessed(seq, duplicates)
        seq.num_immutable_blocks = num_full
        seq.node = node
        self.version += 1

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

    def share(self, seq: Sequence) -> None:
        self.version += 1
        run: Run | None = seq.node
        while run is not None and run.parent is not None:
            run.refs += 1
            run = run.parent
        mutable = seq.block_table[seq.num_immutable_blocks :]
        for run in self._runs_of_strays(mutable):
            run.refs += 1
        for block in mutable:
            if block not in self._strays:
                self._more_owners[block] = self._more_owners.get(block, 0) + 1

    def evict(self, count: int) -> None:
        before = len(self._free)
        order = self._policy.victims(count, self._trim)
        chosen = len(self._free) - before
        if chosen != count:
            raise PolicyError(f"{type(self.evictor).__name__} was asked for {count} victims and chose {chosen}")
        if order is not None:
            self._free[before:] = order
        self.version += 1

    def clear(self) -> None:
        for run in walk(self._roots):
            self._policy.removed(run)
        self._roots.clear()
        self._strays.clear()
        self._free_all()

    def is_shared(self, block: int) -> bool:
        return block in self._more_owners or block in self._strays

    def is_cached(self, block: int) -> bool:
        return block in self._snapshot()[0]

    def ref_count(self, block: int) -> int:
        return self._snapshot()[1].get(block, 0)

    def check_integrity(self, owned: dict[int, int]) -> None:
        super().check_integrity(owned)
        check_tree(self._roots, owned)
        cached = self._snapshot()[0]
        idle = sum(not refs for refs in cached.values())
        assert idle == self.num_idle, f"{idle} blocks are idle, {self.num_idle} are counted"
        assert not set(self._free) & set(cached), "a free block is still cached"
        assert not set(self._more_owners) & set(cached), "an immutable block counts owners of its own"
        for block, run in self._strays.items():
            assert block in run.blocks, f"block {block} is not where its stray owners believe it"
        leaves = {r.blocks[-1] for r in walk(self._roots) if not r.refs and r.children is None}
        assert self._policy.candidates() == leaves, "the policy's candidates are not the tails of the idle leaves"

    def _root(self, seq: Sequence) -> Run:
        assert seq.root is not None
        root = self._roots.get(seq.root)
        if root is None:
            root = self._roots[seq.root] = Run(None, seq.root, 0, [], 0, 0, 0)
        return root

    def _insert(self, seq: Sequence, node: Run, data: bytes, stride: int, start: int, stop: int) -> Run:
        """Register the sequence's blocks `start` to `stop`, of which none is cached; returns the run they end in."""
        if not self._more_owners:
            return self._register(seq, node, data, stride, start, stop, 1)
        more, table = self._more_owners, seq.block_table
        for count, places in groupby(range(start, stop), key=lambda place: more.get(table[place], 0)):
            first, end = (taken := list(places))[0], taken[-1] + 1
            part = data[(first - start) * stride : (end - start) * stride]
            node = self._register(seq, node, part, stride, first, end, 1 + count)
            if count:
                for block in table[first:end]:
                    del more[block]
                    self._strays[block] = node
        return node

    def _register(self, seq: Sequence, node: Run, data: bytes, stride: int, start: int, stop: int, refs: int) -> Run:
        now, policy = seq.access.index, self._policy
        run = Run(node, data, stride, seq.block_table[start:stop], start, refs, now)
        policy.inserted(run, seq.access, self._keys(seq, start, stop) if policy.needs_keys else ())
        if (
            node.refs == refs == 1  # the sequence alone owns both
            and node.children is None
            and policy.uniform
            and node.last_access == now
            and node.rank == run.rank
            and node.stride == stride
        ):
            node.extend(data, run.blocks)
            return node
        node.attach(run)
        return run

    def _keys(self, seq: Sequence, start: int, stop: int) -> Items[Hashable]:
        keys = seq.keys
        if len(keys) < stop:
            assert seq.root is not None
            parent = keys[-1] if keys else self.hasher.root(seq.root)
            keys += self.hasher.chain(parent, seq.contents(self.block_size)[len(keys) : stop])
        return keys[start:stop]

    def _tell_accessed(self, seq: Sequence, runs: list[Run]) -> None:
        if runs:
            self._policy.accessed(runs[:], seq.access)
            runs.clear()

    def _replace_duplicates(self, seq: Sequence, run: Run, start: int) -> None:
        """The sequence computed what this run holds already: it owns the run now and gives its own blocks back."""
        if not run.refs:
            self._unidle(run)
        run.refs += 1
        run.last_access = seq.access.index
        stop = start + len(run.blocks)
        own = seq.block_table[start:stop]
        seq.block_table[start:stop] = run.blocks
        self._drop(own)

    def _drop(self, mutable: list[int]) -> None:
        """One owner fewer for each of these blocks of a sequence's mutable part; freed in this order."""
        if not self._more_owners and not self._strays:
            self._free += mutable
            return
        for block in mutable:
            if block in self._strays:
                continue
            more = self._more_owners.pop(block, 0)
            if more > 1:
                self._more_owners[block] = more - 1
            elif not more:
                self._free.append(block)
        for run in self._runs_of_strays(mutable):
            self._lose_owner(run)

    def _runs_of_strays(self, blocks: list[int]) -> list[Run]:
        strays = self._strays
        return list(dict.fromkeys(strays[block] for block in blocks if block in strays)) if strays else []

    def _lose_owner(self, run: Run) -> None:
        if not run.refs:
            raise MisuseError(f"the run that ends in block {run.blocks[-1]} was released more often than it was taken")
        run.refs -= 1
        if not run.refs:
            self.num_idle += len(run.blocks)
            if run.children is None:
                self._policy.evictable(run)

    def _hold(self, seq: Sequence, match: Match) -> None:
        """Own the block whose beginning is to be copied until there is room for the copy; unless it is that room."""
        part = match.part
        if part is None:
            return
        run: Run = part.run  # the match is split off by now: its first block is the one
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

    def _unidle(self, run: Run) -> None:
        self.num_idle -= len(run.blocks)
        if run.children is None:
            self._policy.pinned(run)

    def _split(self, run: Run, count: int) -> Run:
        head = run.split(count)
        self._policy.split(head, run)
        if self._strays:
            self._strays.update((block, head) for block in head.blocks if block in self._strays)
        return head

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

    def _snapshot(self) -> tuple[dict[int, int], dict[int, int]]:
        """Owners by block: of cached blocks, and of all that are not free. Kept until something changes."""
        state = self.version, self._num_touched, len(self._free)
        if self._seen[0] != state:
            cached = {block: run.refs for run in walk(self._roots) for block in run.blocks}
            free = set(self._free)
            more = self._more_owners
            mutable = (b for b in range(self._num_touched) if b not in cached and b not in free)
            self._seen = state, cached, {**cached, **{block: 1 + more.get(block, 0) for block in mutable}}
        return self._seen[1:]
