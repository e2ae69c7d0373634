"""The books of `radix`: who owns what, in runs, and what can be seen of it block by block.

All blocks of a run have the same owners, so the run counts them once. A mutable block has one owner unless a fork
shares it; only the exceptions are counted. When such a block becomes immutable, the owners that have not come that far
yet hold it as a *stray*: by its id, not by their place in the tree.

Looking at single blocks scans the pool once per state of the cache. Knows nothing of lookups or evictions.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from itertools import groupby

from cache.allocator.base import Allocator
from cache.errors import MisuseError
from cache.evictor.ranked_runs import RankedRuns
from cache.evictor.runs import RunPolicy
from cache.run import Run, check_tree, walk
from cache.sequence import Sequence


class RunTree(Allocator):
    """Roots by encoded extra keys, owners, and a policy over runs."""

    def __init__(self, num_blocks: int | float, block_size: int, policy: RunPolicy) -> None:
        super().__init__(num_blocks, block_size)
        self._policy = policy
        self._roots: dict[bytes, Run] = {}
        self._more_owners: dict[int, int] = {}
        """Mutable blocks with more than one owner → how many more."""
        self._strays: dict[int, Run] = {}
        """Immutable blocks that an owner may hold without having come so far in the tree."""
        self._seen: tuple[tuple[int, int, int], dict[int, int], dict[int, int]] = ((-1, 0, 0), {}, {})

    def catch_up(self) -> None:
        """Promote all that was put off."""
        return

    def take_each(self, count: int) -> list[int]:
        if not isinstance(self._policy, RankedRuns):  # others may choose otherwise when asked for several at once
            return super().take_each(count)
        num_free, num_evicted = len(self._free), max(count - int(min(self.num_free, count)), 0)
        blocks = self.take(count)
        if count <= num_free:
            return blocks[::-1]
        evicted = num_free + num_evicted  # what was freed last is handed out first, what was never used next
        return [*blocks[:num_free][::-1], *blocks[evicted:], *blocks[num_free:evicted]]

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

    def is_shared(self, block: int) -> bool:
        return block in self._more_owners or block in self._strays

    def num_owners(self, block: int) -> int:
        stray = self._strays.get(block)
        return 1 + self._more_owners.get(block, 0) if stray is None else stray.refs

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

    def _snapshot(self) -> tuple[dict[int, int], dict[int, int]]:
        """Owners by block: of cached blocks, and of all that are not free. Kept until something changes."""
        self.catch_up()
        state = self.version, self._num_touched, len(self._free)
        if self._seen[0] != state:
            cached = {block: run.refs for run in walk(self._roots) for block in run.blocks}
            free = set(self._free)
            more = self._more_owners
            mutable = (b for b in range(self._num_touched) if b not in cached and b not in free)
            self._seen = state, cached, {**cached, **{block: 1 + more.get(block, 0) for block in mutable}}
        return self._seen[1:]

    def _root(self, seq: Sequence) -> Run:
        assert seq.root is not None
        root = self._roots.get(seq.root)
        if root is None:
            root = self._roots[seq.root] = Run(None, seq.root, 0, [], 0, 0, 0)
        return root

    def _insert(self, seq: Sequence, node: Run, data: bytes, stride: int, start: int, stop: int) -> list[Run]:
        """Runs for blocks `start` to `stop` of the sequence, none of them cached: one, or one per set of owners.

        The first is not yet attached to `node`: it may become part of it.
        """
        now, table, more = seq.access.index, seq.block_table, self._more_owners
        if not more:
            return [Run(node, data, stride, table[start:stop], start, 1, now)]
        runs: list[Run] = []
        for count, places in groupby(range(start, stop), key=lambda place: more.get(table[place], 0)):
            first, end = (taken := list(places))[0], taken[-1] + 1
            part = data[(first - start) * stride : (end - start) * stride]
            run = Run(node, part, stride, table[first:end], first, 1 + count, now)
            if runs:
                node.attach(run)
            node = run
            runs.append(run)
            if count:
                for block in run.blocks:
                    del more[block]
                    self._strays[block] = run
        return runs

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

    def _num_private(self, table: Items[int], start: int, stop: int) -> int:
        """How many blocks from `start` on have no other owner before the first that has one, or `stop`."""
        more = self._more_owners
        return next((i for i in range(start, stop) if table[i] in more), stop) - start if more else stop - start

    def _lose_owner(self, run: Run) -> None:
        if not run.refs:
            raise MisuseError(f"the run that ends in block {run.blocks[-1]} was released more often than it was taken")
        run.refs -= 1
        if not run.refs:
            self.num_idle += len(run.blocks)
            if run.children is None:
                self._policy.evictable(run)

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
