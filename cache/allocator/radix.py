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

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from collections.abc import Sequence as Items

from cache.allocator.base import Match
from cache.allocator.partial import Part, find_part
from cache.allocator.run_tree import RunTree
from cache.errors import MisuseError, PolicyError
from cache.evictor.base import Evictor
from cache.evictor.block_by_block import BlockByBlock
from cache.hashing.base import Hasher
from cache.observer import Observer
from cache.run import Run, num_common_blocks, walk
from cache.sequence import Sequence
from cache.tokens import TOKEN_BYTES


class Radix(RunTree):
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
        super().__init__(num_blocks, block_size, evictor.by_run() or BlockByBlock(evictor))
        self.hasher = hasher
        self.evictor = evictor
        self.partial_reuse = partial_reuse
        self._held: Part | None = None
        self._evicted: list[tuple[int, int]] = []
        self._late: dict[Run, Sequence] = {}
        """Runs that grow unseen, and the sequences that do so: they catch up before anybody else comes here."""
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
