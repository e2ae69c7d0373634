"""Why each looked-up block hit or missed: exactly one reason per block, counted always, kept block by block on request.

An observer of the manager and its allocator. It remembers every prefix ever looked up (`PrefixTree`), and of each when
it was last touched and whether it is cached, so a reason costs one step per run of blocks, except for misses of known
prefixes, which are looked at one by one. Reasons are decided at the lookup, before anything is evicted for it:

    prefix known under this key?  ── no ──> same tokens under another key?  key differs
         │ yes                                 part of its first block known?  shared part shorter than a block
         │                                        else first seen
    hit · skipped · last token · evicted · after a gap · not cached · reset

Ages are counted from the last touch: in requests (`Access.index`) and in seconds (`Access.time`).

Knows nothing of data frames: `experiments.frames` makes them.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Items
from math import floor, log2
from typing import Any

from cache.extra_keys import differing_parts
from cache.ledger_rows import Decisions, LedgerRows
from cache.observer import Decision, Observer
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

Spans = list[tuple[int, int]]
"""(number of the first prefix, how many) along one chain."""
NEVER, RESIDENT, CLEARED = -1, -2, -3
"""States of a prefix; any other is the index of the request it was evicted for."""
CODES = {reason: code for code, reason in enumerate(REASONS)}
OF_STATE = {NEVER: NOT_CACHED, RESIDENT: AFTER_GAP, CLEARED: RESET}
OCTAVE = 4
"""Ages in seconds are counted in steps of a quarter of an octave: step k begins at 2^(k/4) seconds."""
NO_TIME = -80
"""The step of ages below a microsecond."""


class Ages:
    """How old blocks were at one kind of event, in blocks per age."""

    __slots__ = ("requests", "seconds")

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.seconds: Counter[int] = Counter()
        """By step of a quarter of an octave."""

    def add(self, requests: int, seconds: float, count: int) -> None:
        """`count` blocks of this age."""
        self.requests[requests] += count
        self.seconds[floor(log2(seconds) * OCTAVE) if seconds > 1e-6 else NO_TIME] += count


class Ledger(Observer):
    """Attach with `CacheManager.observe` before the first request."""

    def __init__(self, block_size: int, full: bool = False) -> None:
        """`full`: keep a row for every looked-up block, about 60 bytes each, beside the counts."""
        self.wants_decisions = full
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        """Blocks by reason: the first lookup of each request."""
        self.repeated: Counter[str] = Counter()
        """The same for further lookups of requests that were preempted."""
        self.differing: Counter[tuple[str, ...]] = Counter()
        """Blocks that missed for their key, by the parts that differ."""
        self.shared_tokens = 0
        """Tokens an earlier request had of blocks that missed for a shared part shorter than a block."""
        self.at_hit, self.at_eviction, self.at_miss, self.since_eviction = Ages(), Ages(), Ages(), Ages()
        """Ages since the last touch, and of evicted blocks that were asked for again also since they went."""
        self.num_known = 0
        """Leading blocks of the latest lookup that some earlier one had: what an infinite cache holds of it."""
        self.rows = LedgerRows() if full else None
        self.tree = PrefixTree(block_size)
        self._any_key: PrefixTree | None = None
        self._decisions = Decisions()
        self._state, self._touched = array("q"), array("q")
        self._prefix_of: dict[int, int] = {}
        self._times: dict[int, float] = {}
        self._now = 0
        self._path: tuple[Sequence | None, Spans, int] = None, [], 0

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
        if seq.skip_lookup:
            self._count(counts, SKIPPED, 0, length)
        else:
            if num_hits:
                self._count_hits(counts, walk.runs, num_hits, seq.block_table)
            if num_hits < known:
                self._count_known_misses(counts, walk.runs, num_hits, limit)
        elsewhere = None if self._any_key is None else self._any_key.walk(contents, root, tail)
        if known < length and not seq.skip_lookup:
            self._count_new(counts, walk, length, root, elsewhere)
        for first, last, _ in _part(self._path[1], 0, num_hits):
            self._touched[first:last] = array("q", [now]) * (last - first)

    def promoted(self, seq: Sequence, start: int, stop: int) -> None:
        known, spans, length = self._path
        if known is not seq or length < stop:
            spans = self._follow(seq, stop)
        index = seq.access.index
        for first, last, depth in _part(spans, start, stop):
            count = last - first
            self._touched[first:last] = array("q", [index]) * count
            self._state[first:last] = array("q", [RESIDENT]) * count
            self._prefix_of.update(zip(seq.block_table[depth : depth + count], range(first, last), strict=True))

    def decided(self, block: int, decision: Decision) -> None:
        self._decisions.tell(block, decision)

    def evicted(self, blocks: Items[int]) -> None:
        prefix_of, state, touched, now = self._prefix_of, self._state, self._touched, self._now
        prefixes = [prefix_of.pop(block) for block in blocks]
        lasts: Counter[int] = Counter()
        for prefix in prefixes:
            state[prefix] = now
            lasts[touched[prefix]] += 1
        for last, count in lasts.items():
            self.at_eviction.add(now - last, self._seconds_since(last), count)
        if self.rows is not None:
            self._decisions.evicted(blocks, prefixes)

    def cleared(self) -> None:
        for prefix in self._prefix_of.values():
            self._state[prefix] = CLEARED
        self._prefix_of.clear()

    def prefix_of(self, block: int) -> int | None:
        """The number in `tree` of the prefix a findable block holds; None for any other block."""
        return self._prefix_of.get(block)

    def is_resident(self, prefix: int) -> bool:
        """Whether the prefix of this number is findable now."""
        return self._state[prefix] == RESIDENT

    def age(self, prefix: int) -> tuple[int, float]:
        """Requests and seconds from the last touch of a prefix to the latest lookup."""
        last = self._touched[prefix]
        return self._now - last, self._seconds_since(last)

    # Inside

    def _meet_key(self, root: bytes) -> None:
        """From the second key on, watch tokens regardless of keys; one alone leaves nothing to tell apart."""
        if self._any_key is None:
            roots = self.tree.roots()
            if roots and roots[0] != root:
                self._any_key = self.tree.copy(roots[0], roots[0])

    def _remember(self, seq: Sequence, walk: Walk, length: int) -> None:
        new = length - walk.num_known
        self._state.extend(array("q", [NEVER]) * new)
        self._touched.extend(array("q", [seq.access.index]) * new)
        spans = [(first, count) for first, count, _ in walk.runs]
        if new:
            spans.append((walk.first_new, new))
        self._path = seq, spans, length

    def _follow(self, seq: Sequence, stop: int) -> Spans:
        """The spans of a sequence other than the one looked up last, or of one that has grown: a walk, no touch."""
        self._times.setdefault(seq.access.index, seq.access.time)
        contents, root = seq.contents(self.tree.block_size)[:stop], seq.root or b""
        self._remember(seq, self.tree.walk(contents, seq.access.index, root=root, restamp=False), stop)
        if self._any_key is not None:
            self._any_key.walk(contents, root, restamp=False)
        return self._path[1]

    def _count(self, counts: Counter[str], reason: str, depth: int, count: int, **columns: Any) -> None:
        counts[reason] += count
        if self.rows is not None:
            self.rows.add(self._now, depth, count, CODES[reason], **columns)

    def _count_hits(self, counts: Counter[str], runs: Items[Run], num_hits: int, blocks: list[int]) -> None:
        depth = 0
        for _, count, last in runs:
            count = min(count, num_hits - depth)
            if count <= 0:
                break
            age, seconds = self._now - last, self._seconds_since(last)
            self.at_hit.add(age, seconds, count)
            held = blocks[depth : depth + count] if self.rows is not None else None
            self._count(counts, HIT, depth, count, blocks=held, age=age, age_seconds=seconds)
            depth += count

    def _count_known_misses(self, counts: Counter[str], runs: Items[Run], num_hits: int, limit: int) -> None:
        state, depth = self._state, 0
        for first, count, last in runs:
            age, seconds = self._now - last, self._seconds_since(last)
            for at in range(max(num_hits - depth, 0), count):
                prefix, place = first + at, depth + at
                when = state[prefix]
                if place >= limit:
                    self._count(counts, LAST_TOKEN, place, 1, age=age, age_seconds=seconds)
                elif when < 0:
                    self._count(counts, OF_STATE[when], place, 1, age=age, age_seconds=seconds)
                else:
                    self._count_evicted(counts, prefix, place, age, seconds)
            depth += count

    def _count_evicted(self, counts: Counter[str], prefix: int, depth: int, age: int, seconds: float) -> None:
        when = self._state[prefix]
        gone, gone_seconds = self._now - when, self._seconds_since(when)
        self.at_miss.add(age, seconds, 1)
        self.since_eviction.add(gone, gone_seconds, 1)
        why = self._decisions.of(prefix) if self.rows is not None else {}
        ages = {"age": age, "age_seconds": seconds, "evicted_ago": gone, "evicted_seconds_ago": gone_seconds}
        self._count(counts, EVICTED, depth, 1, **ages, **why)

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


def _part(spans: Spans, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """(first prefix, the one after the last, depth of the first) of the blocks `start` to `stop` of a chain."""
    depth = 0
    for first, count in spans:
        low, high = max(start - depth, 0), min(stop - depth, count)
        if low < high:
            yield first + low, first + high, depth + low
        depth += count
