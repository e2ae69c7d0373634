"""How chains become runs of the tree: promotion, now or put off until somebody comes there.

    computed blocks ── known to the tree? ── yes: the sequence owns those instead, and gives its own back
                                             no: a new run below the last one, or more of it

A chain that grows block by block grows its run. What a sequence generates at the end of a run of its own may be put
off: nobody can tell, as long as nobody comes there.

Knows nothing of lookups and evictions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from collections.abc import Sequence as Items

from cache.allocator.run_tree import RunTree
from cache.evictor.runs import RunPolicy
from cache.hashing.base import Hasher
from cache.run import Run, num_common_blocks
from cache.sequence import Sequence
from cache.tokens import TOKEN_BYTES


class GrowingTree(RunTree):
    """A tree of runs to which sequences add what they compute."""

    def __init__(self, num_blocks: int | float, block_size: int, hasher: Hasher, policy: RunPolicy) -> None:
        super().__init__(num_blocks, block_size, policy)
        self.hasher = hasher
        self._late: dict[Run, Sequence] = {}
        """Runs that grow unseen, and the sequences that do so: they catch up before anybody else comes here."""

    def promote(self, seq: Sequence, num_full: int) -> None:
        i = start = seq.num_immutable_blocks
        if self._late:
            self._late.pop(seq.node, None)
        if seq.sealed or i >= num_full:
            return
        node: Run = seq.node or self._root(seq)
        if self._just_grows(seq, node):
            data, stride, first, stop = seq.segments(self.block_size, i)[-1]
            if i >= first:
                node.extend(data[(i - first) * stride : (num_full - first) * stride], seq.block_table[i:num_full])
                seq.num_immutable_blocks = num_full
                self.version += 1
                self.observer.promoted(seq, start, num_full)
                return
        duplicates: list[Run] = []
        new: list[Run] = []
        for data, stride, first, stop in seq.segments(self.block_size, i):
            if stop > num_full:
                stop = num_full
            while i < stop:
                offset = (i - first) * stride
                child = node.children.get(data[offset : offset + stride]) if node.children else None
                if child is None:
                    if duplicates:
                        self._tell_accessed(seq, duplicates)
                    more = self._insert(seq, node, data[offset : offset + (stop - i) * stride], stride, i, stop)
                    if new:
                        node.attach(more[0])
                    new += more
                    node = new[-1]
                    i = stop
                    break
                if child in self._late:
                    self._late[child].catch_up()
                count = len(child.blocks)
                if count > stop - i or not data.startswith(child.data, offset):
                    count = num_common_blocks(child, data, offset, min(count, stop - i))
                    if count < len(child.blocks):
                        child = self._split(child, count)
                if child.blocks[0] != seq.block_table[i]:
                    private = self._num_private(seq.block_table, i, i + count)
                    if private < count:  # a branch shares the next one and would not own what the rest hangs below
                        seq.sealed, num_full = True, i + private
                        if not private:
                            break
                        stop, count, child = num_full, private, self._split(child, private)
                    self._replace_duplicates(seq, child, i)
                    duplicates.append(child)
                elif duplicates:
                    self._tell_accessed(seq, duplicates)
                i += count
                node = child
        if duplicates:
            self._tell_accessed(seq, duplicates)
        seq.num_immutable_blocks = num_full
        seq.node = self._register(seq, new) if new else node
        self.version += 1
        self.observer.promoted(seq, start, num_full)

    def put_off(self, seq: Sequence) -> bool:
        node = seq.node
        if self.partial_reuse or seq.sealed or node is None or not self._just_grows(seq, node):
            return False
        if not self.observer.can_wait(seq):
            return False
        self._late[node] = seq
        self.version += 1  # a match that ended here was found when nothing was put off
        return True

    def catch_up(self) -> None:
        for seq in list(self._late.values()):
            seq.catch_up()

    def _just_grows(self, seq: Sequence, run: Run) -> bool:
        """Whether what the sequence generates behind this run, in which it ends, becomes part of it without a word."""
        return (
            run.refs == 1  # the sequence alone
            and run.children is None
            and run.last_access == seq.access.index
            and run.stride == self.block_size * TOKEN_BYTES
            and not self._more_owners
            and self._policy.just_grows(run, seq.access)
        )

    def _register(self, seq: Sequence, runs: list[Run]) -> Run:
        """Tell the policy of new runs along one chain, hang them into the tree, and return the run they end in."""
        policy, parent, start = self._policy, runs[0].parent, runs[0].depth
        assert parent is not None
        keys = self._give_keys(seq, parent, runs) if policy.needs_keys else ()
        for cut in policy.cuts(keys):
            self._cut(runs, start + cut)
        first, last = runs[0], runs[-1]
        policy.inserted(runs, seq.access, keys)
        if (
            parent.refs == first.refs == 1  # the sequence alone owns both
            and parent.children is None
            and parent.last_access == first.last_access
            and parent.stride == first.stride
            and policy.join(parent, first)  # asked last: it may join what it keeps of them
        ):
            parent.join(first)
            return parent if last is first else last
        parent.attach(first)
        return last

    def _give_keys(self, seq: Sequence, parent: Run, runs: Items[Run]) -> Items[Hashable]:
        """Chain the keys of new runs on to those of their parent, and return them."""
        assert seq.root is not None
        start, stop = runs[0].depth, runs[-1].depth + len(runs[-1].blocks)
        before = parent.keys[-1] if parent.keys else self.hasher.root(seq.root)
        keys = self.hasher.chain(before, seq.contents_between(self.block_size, start, stop))
        for run in runs:
            run.keys = keys[run.depth - start : run.depth - start + len(run.blocks)]
        return keys

    def _cut(self, runs: list[Run], depth: int) -> None:
        """Make `depth` a border between two of these runs, which lie along one chain; the first is not attached yet."""
        place = bisect_right(runs, depth, key=lambda run: run.depth) - 1
        if runs[place].depth < depth:
            head = self._split(runs[place], depth - runs[place].depth)
            if not place and head.parent is not None:
                head.parent.detach(head)
            runs.insert(place, head)

    def _tell_accessed(self, seq: Sequence, runs: list[Run]) -> None:
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
