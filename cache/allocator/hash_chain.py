"""Sharing by chained hashes: one dictionary from key to block. The readable reference.

A registered block keeps a *node* (parent node, content, key). Nodes say exactly which prefix a block holds, so a
collision of keys is seen and answered by a miss: on a hit the content is compared and the parent's node must be the
one just matched. A sequence whose key is taken by another prefix stays private from there on.

Source of the scheme: Kwon et al., "Efficient memory management for large language model serving with PagedAttention",
SOSP 2023, and the automatic prefix caching built on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from collections.abc import Sequence as Items
from itertools import groupby
from typing import Any

from cache.allocator.base import Match
from cache.allocator.counting import CountingAllocator
from cache.errors import PolicyError
from cache.evictor.base import Evictor
from cache.hashing.base import Hasher
from cache.sequence import Sequence

Node = tuple[Any, Hashable, Hashable]
"""(parent's node or None for the root, content, key)"""

NO_PARENT = -1


class HashChain(CountingAllocator):
    """Blocks found by key, kept while idle, evicted under pressure.

    With `leaf_only` (default) only a block without a resident child may go, so the resident set stays closed under
    prefix; without it, children of an evicted block stay behind unreachable until they are evicted themselves.
    """

    evictor: Evictor

    def __init__(
        self, num_blocks: int | float, block_size: int, hasher: Hasher, evictor: Evictor, leaf_only: bool = True
    ) -> None:
        super().__init__(num_blocks, block_size)
        self.hasher = hasher
        self.evictor = evictor
        self.leaf_only = leaf_only
        self._index: dict[Hashable, int] = {}
        self._nodes: list[Node | None] = []
        self._parents: list[int] = []
        self._num_children: list[int] = []
        self._last_access: list[int] = []
        self._now = 0

    def find(self, seq: Sequence, limit: int) -> Match:
        blocks: list[int] = []
        if seq.sealed:
            return Match(blocks, 0, self.version)
        contents = self._prepare(seq)
        index, nodes, exact = self._index, self._nodes, self.hasher.exact
        parent = seq.node
        for key, content in zip(seq.keys[:limit], contents, strict=False):
            block = index.get(key)
            if block is None:
                break
            if not exact:
                node = nodes[block]
                if node[1] != content or (node[0] is not parent and not _same_prefix(node[0], parent)):  # type: ignore[index]
                    break
                parent = node
            blocks.append(block)
        refs, num_idle = self._refs, 0
        for block in reversed(blocks):  # owners of a block own its ancestors: idle blocks are the deepest ones
            if refs[block]:
                break
            num_idle += 1
        return Match(blocks, num_idle, self.version)

    def acquire(self, seq: Sequence, match: Match) -> None:
        now = self._now = seq.access.index
        self.version += 1
        blocks = match.blocks
        if not blocks:
            return
        refs, last_access, stats = self._refs, self._last_access, self.stats
        age = 0
        for block in blocks:
            if not refs[block]:
                self._unidle(block)
            refs[block] += 1
            age += now - last_access[block]
            last_access[block] = now
        stats.hits += len(blocks)
        stats.hit_age += age
        self.evictor.accessed(blocks, 0, seq.access)
        seq.block_table = blocks[:]
        seq.num_immutable_blocks = len(blocks)
        seq.node = self._nodes[blocks[-1]]

    def promote(self, seq: Sequence, num_full: int) -> None:
        start = seq.num_immutable_blocks
        if seq.sealed or start >= num_full:
            return
        contents, keys, table = self._prepare(seq), seq.keys, seq.block_table
        index, nodes, parents, num_children = self._index, self._nodes, self._parents, self._num_children
        last_access, now, leaf_only, refs = self._last_access, seq.access.index, self.leaf_only, self._refs
        node: Node = seq.node
        parent = table[start - 1] if start else NO_PARENT
        run_start = start  # blocks run_start..i are new here and not yet told to the evictor
        duplicates: list[int] = []  # the cached ones that took the place of blocks up to i, not yet told either
        i = start
        for i in range(start, num_full):
            key, block = keys[i], table[i]
            cached = index.setdefault(key, block)
            if cached == block and nodes[block] is None:
                if duplicates:
                    self._tell_accessed(seq, duplicates, i)
                node = nodes[block] = (node, contents[i], key)
                parents[block] = parent
                if leaf_only and parent >= 0:
                    num_children[parent] += 1
                last_access[block] = now
            else:
                self._tell_inserted(seq, run_start, i)
                run_start = i + 1
                other = nodes[cached]
                assert other is not None
                if cached == block:
                    self._tell_accessed(seq, duplicates, i)
                else:
                    if other[1] != contents[i] or not _same_prefix(other[0], node):
                        seq.sealed = True  # another prefix holds this key: the rest stays private
                        break
                    if refs[block] > 1:
                        seq.sealed = True  # a branch shares it and would not own what the rest hangs below
                        break
                    self._replace_duplicate(seq, i, cached)
                    duplicates.append(cached)
                node = other
            parent = table[i]
        else:
            i = num_full
        self._tell_inserted(seq, run_start, i)
        self._tell_accessed(seq, duplicates, i)
        seq.num_immutable_blocks = i
        seq.node = node
        self.version += 1
        self.observer.promoted(seq, start, i)

    def release(self, seq: Sequence, start: int = 0) -> None:
        self._release(seq.block_table[start:])

    def _release(self, blocks: Items[int]) -> None:
        nodes, num_children, leaf_only = self._nodes, self._num_children, self.leaf_only
        refs = self._refs
        self.version += 1
        for block in reversed(blocks):
            left = refs[block] - 1
            if left < 0:
                raise self._released_too_often(block)
            refs[block] = left
            if left:
                continue
            if nodes[block] is None:
                self._free.append(block)
            else:
                self.num_idle += 1
                if not (leaf_only and num_children[block]):
                    self.evictor.evictable(block)

    def evict(self, count: int) -> None:
        free = self._free
        before = len(free)
        self.evictor.victims(count, self._uncover)
        if len(free) - before != count:
            raise PolicyError(
                f"{type(self.evictor).__name__} was asked for {count} victims and chose {len(free) - before}"
            )
        self.version += 1
        self.observer.evicted(free[before:])

    def clear(self) -> None:
        for block in self._index.values():
            self.evictor.removed(block)
            self._nodes[block] = None
            self._num_children[block] = 0
        self._index.clear()
        self._free_all()
        self.observer.cleared()

    def is_shared(self, block: int) -> bool:
        return self._refs[block] > 1 or self._nodes[block] is not None

    def is_cached(self, block: int) -> bool:
        return block < len(self._nodes) and self._nodes[block] is not None

    @property
    def closed_under_prefix(self) -> bool:
        return self.leaf_only

    def last_touches(self, blocks: Items[int]) -> Iterable[tuple[int, int]]:
        last_access = self._last_access
        return ((last, len(list(run))) for last, run in groupby(blocks, key=last_access.__getitem__))

    def count_unreachable(self) -> int:
        if self.leaf_only:
            return 0
        reachable: dict[Hashable, bool] = {}
        for node in (self._nodes[block] for block in self._index.values()):
            path: list[Hashable] = []
            while node is not None and node[0] is not None and node[2] not in reachable:
                path.append(node[2])
                node = node[0] if node[2] in self._index else None
            alive = node is not None and (node[0] is None or reachable[node[2]])
            reachable.update(dict.fromkeys(path, alive))
        return sum(not reachable[key] for key in self._index)

    def check_integrity(self, owned: dict[int, int]) -> None:
        super().check_integrity(owned)
        registered = {b for b, node in enumerate(self._nodes) if node is not None}
        assert registered == set(self._index.values()), "index and blocks disagree"
        assert len(registered) == len(self._index), "two keys name one block"
        idle = {b for b in registered if not self._refs[b]}
        assert len(idle) == self.num_idle, f"{len(idle)} blocks are idle, {self.num_idle} are counted"
        assert not idle & set(self._free), "a free block is still cached"
        candidates = idle
        if self.leaf_only:
            children = dict.fromkeys(registered, 0)
            for block in registered:
                if (parent := self._parents[block]) != NO_PARENT:
                    assert self._nodes[block][0] is self._nodes[parent], f"the parent of block {block} is not resident"  # type: ignore[index]
                    assert self._refs[parent] >= self._refs[block], f"block {block} outlives its parent's owners"
                    children[parent] += 1
            for block, count in children.items():
                assert self._num_children[block] == count, f"block {block} miscounts its children"
            candidates = {b for b in idle if not children[b]}
        assert self.evictor.candidates() == candidates, "the evictor's candidates are not the idle blocks"

    def _prepare(self, seq: Sequence) -> list[Hashable]:
        """Bring the sequence's contents and keys up to its length; a sequence without a node starts at its root."""
        contents = seq.contents(self.block_size)
        if seq.node is None:
            assert seq.root is not None
            seq.node = (None, seq.root, self.hasher.root(seq.root))
            seq.keys = []
        keys = seq.keys
        if len(keys) < len(contents):
            parent = keys[-1] if keys else seq.node[2]
            keys += self.hasher.chain(parent, contents[len(keys) :] if keys else contents)
        return contents

    def _tell_inserted(self, seq: Sequence, start: int, stop: int) -> None:
        if start < stop:
            self.evictor.inserted(seq.block_table[start:stop], start, seq.access, seq.keys[start:stop])

    def _tell_accessed(self, seq: Sequence, blocks: list[int], stop: int) -> None:
        if blocks:
            self.evictor.accessed(blocks[:], stop - len(blocks), seq.access)
            blocks.clear()

    def _replace_duplicate(self, seq: Sequence, position: int, cached: int) -> None:
        own = seq.block_table[position]
        if not self._refs[cached]:
            self._unidle(cached)
        self._refs[cached] += 1
        self._last_access[cached] = seq.access.index
        seq.block_table[position] = cached
        self._release([own])

    def _unidle(self, block: int) -> None:
        self.num_idle -= 1
        if not (self.leaf_only and self._num_children[block]):
            self.evictor.pinned(block)

    def _uncover(self, block: int) -> int:
        node = self._nodes[block]
        if node is None or self._refs[block] or (self.leaf_only and self._num_children[block]):
            raise PolicyError(f"{type(self.evictor).__name__} chose block {block}, which is no candidate")
        del self._index[node[2]]
        self._nodes[block] = None
        self._free.append(block)
        self.num_idle -= 1
        self.stats.evictions += 1
        self.stats.evicted_age += self._now - self._last_access[block]
        if not self.leaf_only:
            return NO_PARENT
        parent = self._parents[block]
        if parent >= 0:
            children = self._num_children[parent] = self._num_children[parent] - 1
            if not children and not self._refs[parent]:
                return parent
        return NO_PARENT

    def _grow(self, count: int) -> None:
        self._nodes.extend([None] * count)
        self._parents.extend([NO_PARENT] * count)
        self._num_children.extend([0] * count)
        self._last_access.extend([0] * count)


def _same_prefix(a: Node | None, b: Node | None) -> bool:
    """Whether two nodes hold the same extra keys and tokens; identical nodes end the walk at once."""
    while a is not b:
        if a is None or b is None or a[1] != b[1]:
            return False
        a, b = a[0], b[0]
    return True
