"""Why each looked-up block hit or missed: exactly one reason per block, counted always, kept block by block on request.

An observer of the manager and its allocator. It remembers every prefix ever looked up (`PrefixTree`), and of each when
it was last touched and whether it was ever cached, so counting costs a few steps per run of blocks, not per block; a
sequence that grows is followed from the place it has come to (`Sequence.trail`). Only where every block is kept, or the
allocator may evict a parent before its child, are blocks followed one by one (`BlockStates`). Reasons are decided at
the lookup, before anything is evicted for it:

    prefix known under this key?  ── no ──> same tokens under another key?  key differs
         │ yes                                 part of its first block known?  shared part shorter than a block
         │                                        else first seen
    hit · skipped · last token · evicted · after a gap · not cached · reset

Ages are counted from the last touch: in requests (`Access.index`) and in seconds (`Access.time`). Of a prompt's partly
filled last block the ledger knows the tokens that were there at the lookup, not those generated later.

Knows nothing of data frames: `experiments.frames` makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from functools import partial
from typing import Any

from cache.ages import Ages
from cache.extra_keys import differing_parts
from cache.ledger_blocks import CLEARED, NEVER, RESIDENT, BlockStates
from cache.ledger_rows import LedgerRows
from cache.observer import Decision, Observed, Observer
from cache.prefix_node import Node
from cache.prefix_tree import PrefixTree, Walk
from cache.reasons import (
    AFTER_GAP,
    EVICTED,
    FIRST_SEEN,
    HIT,
    KEY_DIFFERS,
    LAST_TOKEN,
    NOT_CACHED,
    REASONS,
    RESET,
    SHORT_SHARE,
    SKIPPED,
)
from cache.sequence import Sequence

Known = tuple[Node, int]
"""A run of known blocks, and the request that touched them last."""
CODES = {reason: code for code, reason in enumerate(REASONS)}
OF_STATE = {NEVER: NOT_CACHED, RESIDENT: AFTER_GAP, CLEARED: RESET}


class Ledger(Observer):
    """Attach with `CacheManager.observe` before the first request."""

    def __init__(self, block_size: int, full: bool = False) -> None:
        """`full`: keep a row for every looked-up block, about 60 bytes each, beside the counts."""
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        """Blocks by reason: the first lookup of each request."""
        self.repeated: Counter[str] = Counter()
        """The same for further lookups of requests that were preempted."""
        self.differing: Counter[tuple[str, ...]] = Counter()
        """Blocks that missed for their key, by the parts that differ."""
        self.shared_tokens = 0
        """Tokens an earlier request had of blocks that missed for a shared part shorter than a block."""
        self._times: dict[int, float] = {}
        self.at_hit, self.at_eviction, self.at_miss = (Ages(self._times) for _ in range(3))
        """Ages since the last touch: of blocks that hit, that were evicted, that missed because they were evicted."""
        self.num_known = 0
        """Leading blocks of the latest lookup that some earlier one had: what an infinite cache holds of it."""
        self.tree = PrefixTree(block_size, joins=True)
        """Marked blocks: those that are or were cached since the last reset."""
        self.rows = LedgerRows() if full else None
        self.blocks: BlockStates | None = None
        self.wants_decisions = full
        self._any_key: PrefixTree | None = None
        self._only_key: bytes | None = None
        """The first key of all; while there is no other, nothing else is watched."""
        self._late: dict[Sequence, Node] = {}
        """Sequences that have grown since they were followed last, and the runs in the tree from which they go on."""
        self._now = self._request = 0
        self._last_touches: Callable[[Items[int]], Iterable[tuple[int, int]]] = lambda blocks: ()
        if full:
            self._follow_blocks()

    def attached(self, allocator: Observed) -> None:
        self._last_touches = allocator.last_touches
        if not allocator.closed_under_prefix and self.blocks is None:
            self._follow_blocks()  # a known block that missed may still be resident

    def looked_up(self, seq: Sequence, num_hits: int, limit: int) -> None:
        access, root, size, times = seq.access, seq.root or b"", self.tree.block_size, self._times
        now = access.index
        counts = self.repeated if access.again or now in times else self.counts
        self._now, self._request, times[now] = now, access.request_index, access.time
        if root != self._only_key:
            self._meet_key(root)
        segments, tail = seq.segments(size), seq.tail(size)
        elsewhere = None if self._any_key is None else self._any_key.walk(segments, root, tail)
        walk = self.tree.walk(segments, now, tail, root)
        self.num_known = known = walk.num_known
        seq.num_followed_blocks = length = segments[-1][3]
        seq.trail = walk.end, elsewhere and elsewhere.end
        if self.blocks is not None:
            self.blocks.grow(length - known)
        if seq.skip_lookup:
            self._count(counts, SKIPPED, 0, length)
            return
        if num_hits:
            self._count_hits(counts, walk.runs, num_hits, seq.block_table)
        if num_hits < known:
            self._count_known_misses(counts, walk.runs, num_hits, limit)
        if known < length:
            self._count_new(counts, walk, length, root, elsewhere)

    def promoted(self, seq: Sequence, start: int, stop: int) -> None:
        if start == stop or seq in self._late or (start >= seq.num_followed_blocks and self._may_be_late(seq)):
            return
        if seq.num_followed_blocks < stop:
            self._follow(seq, stop)
        self._cached(seq, start, stop)

    def can_wait(self, seq: Sequence) -> bool:
        return seq in self._late

    def released(self, seq: Sequence) -> None:
        if seq in self._late:
            self.tree.arrive(self._late[seq])

    def decided(self, block: int, decision: Decision) -> None:
        if self.blocks is not None:
            self.blocks.decided(block, decision)

    def evicted(self, blocks: Items[int]) -> None:
        self.at_eviction.add_all(self._now, self._last_touches(blocks))
        if self.blocks is not None:
            self.blocks.evicted(blocks, self._now)

    def cleared(self) -> None:
        self.tree.unmark()
        if self.blocks is not None:
            self.blocks.cleared()

    def age(self, last: int) -> tuple[int, float]:
        """Requests and seconds from the lookup of index `last` to the latest one."""
        return self._now - last, self._seconds_since(last)

    # Inside

    def _follow_blocks(self) -> None:
        self.blocks = BlockStates()
        self.tree = PrefixTree(self.tree.block_size)

    def _meet_key(self, root: bytes) -> None:
        """From the second key on, watch tokens regardless of keys; one alone leaves nothing to tell apart."""
        if self._only_key is None:
            self._only_key = root
        elif self._any_key is None:
            self._any_key = self.tree.copy(self._only_key, self._only_key)

    def _may_be_late(self, seq: Sequence) -> bool:
        """Whether what a sequence adds while it decodes can wait until somebody comes there, or it is done."""
        if self.blocks is None and self._any_key is None:
            node = self.tree.put_off(seq.trail[0], seq.num_followed_blocks, partial(self._catch_up, seq))
            if node is not None:
                self._late[seq] = node
                return True
        return False

    def _catch_up(self, seq: Sequence) -> None:
        seq.catch_up()
        del self._late[seq]
        start, stop = seq.num_followed_blocks, seq.num_immutable_blocks
        self._follow(seq, stop)
        self._cached(seq, start, stop)

    def _cached(self, seq: Sequence, start: int, stop: int) -> None:
        node: Node = seq.trail[0]
        if self.blocks is None:
            node.mark(start, stop)
            return
        while stop > start:
            node = node.holding(stop)
            low = max(start, node.depth)
            self.blocks.promoted(seq.block_table[low:stop], node.first + low - node.depth)
            stop = low

    def _follow(self, seq: Sequence, stop: int) -> None:
        """The sequence has grown since it was looked up or followed last: go on from there, touching nothing."""
        index, depth = seq.access.index, seq.num_followed_blocks
        self._times.setdefault(index, seq.access.time)
        segments, tree = seq.segments(self.tree.block_size, depth), self.tree
        node, elsewhere = seq.trail
        if self.blocks is None:
            node = tree.follow(node, depth, segments, stop, index)
        else:
            known = tree.num_prefixes
            node = tree.follow(node, depth, segments, stop, index)
            self.blocks.grow(tree.num_prefixes - known)
        if self._any_key is not None:
            start = depth
            if elsewhere is None:  # it was looked up before there was a second key
                elsewhere, start, segments = self._any_key.root(b""), 0, seq.segments(tree.block_size)
            elsewhere = self._any_key.follow(elsewhere, start, segments, stop, seq.root)
        seq.trail, seq.num_followed_blocks = (node, elsewhere), stop

    def _count(self, counts: Counter[str], reason: str, depth: int, count: int, **columns: Any) -> None:
        counts[reason] += count
        if self.rows is not None:
            self.rows.add(self._request, depth, count, CODES[reason], **columns)

    def _count_hits(self, counts: Counter[str], runs: Items[Known], num_hits: int, blocks: list[int]) -> None:
        counts[HIT] += num_hits
        now, at_hit, rows = self._now, self.at_hit, self.rows
        for node, last in runs:
            depth, count = node.depth, node.length
            if depth + count > num_hits:
                count = num_hits - depth
            at_hit.add(now, last, count)
            if rows is not None:
                held = blocks[depth : depth + count]
                rows.add(self._request, depth, count, CODES[HIT], held, now - last, self._seconds_since(last))
            if depth + count == num_hits:
                return

    def _count_known_misses(self, counts: Counter[str], runs: Items[Known], num_hits: int, limit: int) -> None:
        now = self._now
        for node, last in runs:
            depth = node.depth
            low, high = max(num_hits - depth, 0), min(node.length, limit - depth)
            if low >= high:
                continue
            if self.blocks is not None:
                for at in range(low, high):
                    self._explain(counts, node.first + at, depth + at, last)
                continue
            marked, once = node.num_marked, node.num_once_marked
            evicted = min(high, marked) - low
            if evicted > 0:
                counts[EVICTED] += evicted
                self.at_miss.add(now, last, evicted)
                low += evicted
            if low < high:
                lost = max(min(high, once) - low, 0)
                counts[RESET] += lost
                counts[NOT_CACHED] += high - low - lost
        node, last = runs[-1]
        if node.depth + node.length > limit:
            self._count(counts, LAST_TOKEN, limit, 1, age=now - last, age_seconds=self._seconds_since(last))

    def _explain(self, counts: Counter[str], prefix: int, depth: int, last: int) -> None:
        assert self.blocks is not None
        when = self.blocks.state(prefix)
        ages: dict[str, Any] = {"age": self._now - last, "age_seconds": self._seconds_since(last)}
        if when < 0:
            self._count(counts, OF_STATE[when], depth, 1, **ages)
            return
        self.at_miss.add(self._now, last, 1)
        ages |= {"evicted_ago": self._now - when, "evicted_seconds_ago": self._seconds_since(when)}
        self._count(counts, EVICTED, depth, 1, **ages, **self.blocks.decision(prefix))

    def _count_new(self, counts: Counter[str], walk: Walk, length: int, root: bytes, elsewhere: Walk | None) -> None:
        depth = known = walk.num_known
        for node, other in elsewhere.runs if elsewhere else ():
            start = node.depth + node.length
            if start > depth:
                parts = differing_parts(root, other)
                self.differing[parts] += start - depth
                self._count(counts, KEY_DIFFERS, depth, start - depth, differs=" + ".join(parts))
                depth = start
        if depth == known and walk.num_shared:
            self.shared_tokens += walk.num_shared
            self._count(counts, SHORT_SHARE, depth, 1, shared_tokens=walk.num_shared)
            depth += 1
        if depth < length:
            self._count(counts, FIRST_SEEN, depth, length - depth)

    def _seconds_since(self, index: int) -> float:
        return self._times[self._now] - self._times[index]
