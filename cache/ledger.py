"""Why each looked-up block hit or missed: exactly one reason per block, counted always, kept block by block on request.

An observer of the manager and its allocator. It remembers every prefix ever looked up (`PrefixTree`), and of each when
it was last touched and whether it was ever cached, so counting costs a few steps per run of blocks, not per block. Only
where every block is kept, or the allocator may evict a parent before its child, are blocks followed one by one
(`BlockStates`). Reasons are decided at the lookup, before anything is evicted for it:

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
from itertools import groupby
from typing import Any

from cache.ages import Ages
from cache.extra_keys import differing_parts
from cache.ledger_blocks import CLEARED, NEVER, RESIDENT, BlockStates
from cache.ledger_rows import LedgerRows
from cache.observer import Decision, Observed, Observer
from cache.prefix_tree import PrefixTree, Run, Walk
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

CACHED, GONE = b"\1", b"\2"
"""Whether a prefix was ever cached, and whether that was before a reset; 0: never."""
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
        self.tree = PrefixTree(block_size)
        self.rows = LedgerRows() if full else None
        self.blocks = BlockStates() if full else None
        self.wants_decisions = full
        self._any_key: PrefixTree | None = None
        self._cached = bytearray()
        self._now = 0
        self._path: tuple[Sequence | None, list[Run], int] = None, [], 0
        self._last_accesses: Callable[[Items[int]], Iterable[int]] = lambda blocks: ()

    def attached(self, allocator: Observed) -> None:
        self._last_accesses = allocator.last_accesses
        if not allocator.closed_under_prefix:
            self.blocks = self.blocks or BlockStates()  # a known block that missed may still be resident

    def looked_up(self, seq: Sequence, num_hits: int, limit: int) -> None:
        now, size, root = seq.access.index, self.tree.block_size, seq.root or b""
        contents, tail = seq.contents(size), seq.tail(size)
        counts = self.repeated if now in self._times else self.counts
        self._now, self._times[now] = now, seq.access.time
        self._meet_key(root)
        walk = self.tree.walk(contents, now, tail, root)
        known, length = walk.num_known, len(contents)
        self.num_known = known
        self._remember(seq, walk, length)
        elsewhere = None if self._any_key is None else self._any_key.walk(contents, root, tail)
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
        at_hand, runs, length = self._path
        if at_hand is not seq or length < stop:
            runs = self._follow(seq, stop)
        depth = 0
        for first, count, _ in runs:
            end = depth + count
            if start < end and depth < stop:
                low, high = max(start, depth), min(stop, end)
                first += low - depth
                self._cached[first : first + high - low] = CACHED * (high - low)
                if self.blocks is not None:
                    self.blocks.promoted(seq.block_table[low:high], first)
            depth = end

    def decided(self, block: int, decision: Decision) -> None:
        if self.blocks is not None:
            self.blocks.decided(block, decision)

    def evicted(self, blocks: Items[int]) -> None:
        for last, group in groupby(self._last_accesses(blocks)):
            self.at_eviction.add(self._now, last, len(list(group)))
        if self.blocks is not None:
            self.blocks.evicted(blocks, self._now)

    def cleared(self) -> None:
        self._cached = self._cached.replace(CACHED, GONE)
        if self.blocks is not None:
            self.blocks.cleared()

    def age(self, last: int) -> tuple[int, float]:
        """Requests and seconds from the lookup of index `last` to the latest one."""
        return self._now - last, self._seconds_since(last)

    # Inside

    def _meet_key(self, root: bytes) -> None:
        """From the second key on, watch tokens regardless of keys; one alone leaves nothing to tell apart."""
        if self._any_key is None:
            roots = self.tree.roots()
            if roots and roots[0] != root:
                self._any_key = self.tree.copy(roots[0], roots[0])

    def _remember(self, seq: Sequence, walk: Walk, length: int) -> list[Run]:
        new, runs = length - walk.num_known, walk.runs
        if new:
            runs = [*runs, (walk.first_new, new, None)]
            self._cached.extend(bytes(new))
            if self.blocks is not None:
                self.blocks.grow(new)
        self._path = seq, runs, length
        return runs

    def _follow(self, seq: Sequence, stop: int) -> list[Run]:
        """The runs of a sequence other than the one looked up last, or of one that has grown: a walk, no touch."""
        self._times.setdefault(seq.access.index, seq.access.time)
        contents, root = seq.contents(self.tree.block_size)[:stop], seq.root or b""
        if self._any_key is not None:
            self._any_key.walk(contents, root, restamp=False)
        return self._remember(seq, self.tree.walk(contents, seq.access.index, root=root, restamp=False), stop)

    def _count(self, counts: Counter[str], reason: str, depth: int, count: int, **columns: Any) -> None:
        counts[reason] += count
        if self.rows is not None:
            self.rows.add(self._now, depth, count, CODES[reason], **columns)

    def _count_hits(self, counts: Counter[str], runs: Items[Run], num_hits: int, blocks: list[int]) -> None:
        counts[HIT] += num_hits
        depth, now = 0, self._now
        for _, count, last in runs:
            if depth + count > num_hits:
                count = num_hits - depth
            self.at_hit.add(now, last, count)
            if self.rows is not None:
                held = blocks[depth : depth + count]
                self.rows.add(now, depth, count, CODES[HIT], held, now - last, self._seconds_since(last))
            depth += count
            if depth == num_hits:
                break

    def _count_known_misses(self, counts: Counter[str], runs: Items[Run], num_hits: int, limit: int) -> None:
        depth, now = 0, self._now
        for first, count, last in runs:
            low, high = max(num_hits - depth, 0), min(count, limit - depth)
            if low < high and self.blocks is None:
                was = self._cached[first + low : first + high]
                evicted = was.count(CACHED)
                if evicted:
                    counts[EVICTED] += evicted
                    self.at_miss.add(now, last, evicted)
                if evicted < len(was):
                    counts[RESET] += was.count(GONE)
                    counts[NOT_CACHED] += was.count(0)
            elif low < high:
                for at in range(low, high):
                    self._explain(counts, first + at, depth + at, last)
            depth += count
        if depth > limit:
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
        start = 0
        for _, count, other in elsewhere.runs if elsewhere else ():
            start += count
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
