"""Sequences that grow, fork, are cut, given up and taken back: the ledger's reasons are those that snapshots give."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conf import SHARING, build, sharing_allocator
from support.explain import History, findable
from support.ledgers import KEYS, rows_of

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.allocator.radix import Radix
from cache.errors import OutOfBlocks, SequenceTooLarge
from cache.extra_keys import ExtraKeys
from cache.hashing.builtin import BuiltinHash
from cache.ledger import Ledger
from cache.ledger_requests import RequestReasons
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens

BASES = ([0] * 14, [0, 1] * 7, [0, 0, 0, 1] * 4)


class Triplets:
    """The same done to three caches: one whose ledger keeps every block, two whose ledgers count."""

    def __init__(self, size: int, num_blocks: int) -> None:
        def chain() -> HashChain:
            return HashChain(num_blocks, size, BuiltinHash(), build("evictor", "lru"))

        self.size = size
        self.allocator = chain()
        tree = Radix(num_blocks, size, BuiltinHash(), build("evictor", "lru"))
        self.managers = [CacheManager(allocator) for allocator in (self.allocator, chain(), tree)]
        self.ledgers = [Ledger(size, full=True), Ledger(size), Ledger(size)]
        for manager, ledger in zip(self.managers, self.ledgers, strict=True):
            manager.observe(ledger)
        self.per_request = RequestReasons(self.ledgers[2])
        self.history = History(size)
        self.keys: dict[bytes, Any] = {}
        self.key_of: dict[int, Any] = {}
        self.live: list[list[Sequence]] = []
        self.away: list[list[Sequence]] = []
        self.clock = self.now = self.version = 0
        self.expected: list[dict[str, Any]] = []
        self.first: Counter[str] = Counter()
        self.seen: set[int] = set()
        self.look()

    def look(self, cleared: bool = False) -> None:
        self.history.snapshot(self.now, self.now / 2, findable(self.allocator, self.keys), cleared)

    def arrive(self, prompt: list[int], extra: ExtraKeys) -> None:
        access = Access(self.clock, self.clock / 2)
        self.clock += 1
        self.allocate([Sequence(PackedTokens.of(prompt), access, extra, skip_lookup=len(prompt) == 13) for _ in "abc"])

    def allocate(self, three: list[Sequence]) -> None:
        manager, first = self.managers[0], three[0]
        key = first.extra_keys, manager.weights_version
        self.keys[first.extra_keys.encode(manager.weights_version)] = key
        done = []
        for cache, seq in zip(self.managers, three, strict=True):
            try:
                cache.allocate(seq)
            except (OutOfBlocks, SequenceTooLarge):
                continue
            done.append(seq)
        assert len(done) in (0, 3), "the caches differ"
        if not done:
            return
        rows = self.history.explain(first, key, first.num_hit_blocks)
        self.expected += rows
        reasons = Counter(row["reason"] for row in rows)
        if first.access.index not in self.seen:
            self.first += reasons
            assert self.per_request(three[2]) == reasons
        self.seen.add(first.access.index)
        self.now = first.access.index
        self.key_of[id(first)] = key
        self.history.request(first, key)
        self.live.append(three)
        self.look()

    def compute(self, three: list[Sequence], stop: int) -> None:
        first = three[0]
        for cache, seq in zip(self.managers, three, strict=True):
            cache.promote_to_immutable(seq, stop)
        if first.num_immutable_blocks and not first.sealed:
            self.history.growth(first, self.key_of[id(first)])
        self.look()

    def append(self, three: list[Sequence], tokens: list[int]) -> None:
        if self.managers[0].can_append(three[0], len(tokens)):
            for cache, seq in zip(self.managers, three, strict=True):
                try:
                    cache.append(seq, tokens)
                except SequenceTooLarge:
                    return
            self.look()

    def fork(self, three: list[Sequence]) -> None:
        self.compute(three, three[0].num_tokens)
        twins = [cache.fork(seq) for cache, seq in zip(self.managers, three, strict=True)]
        self.key_of[id(twins[0])] = self.key_of[id(three[0])]
        self.live.append(twins)

    def cut(self, three: list[Sequence], back: int) -> None:
        first = three[0]
        floor = max(len(first.prompt), first.num_immutable_blocks * self.size)
        for cache, seq in zip(self.managers, three, strict=True):
            cache.truncate(seq, max(floor, first.num_tokens - back) if seq is first else three[0].num_tokens)

    def free(self, three: list[Sequence]) -> None:
        self.live.remove(three)
        for cache, seq in zip(self.managers, three, strict=True):
            cache.free(seq)

    def step(self, draw: random.Random, extras: list[ExtraKeys]) -> None:
        """One random operation."""
        dice, live = draw.random(), self.live
        if dice < 0.2 or not live:
            if len(live) < 6:
                tail = [draw.randrange(2) for _ in range(draw.randrange(3))]
                self.arrive(draw.choice(BASES)[: draw.randrange(1, 14)] + tail, draw.choice(extras))
            return
        three = draw.choice(live)
        first = three[0]
        if dice < 0.45:
            self.compute(three, draw.choice((first.num_tokens, first.num_tokens, first.num_computed_tokens)))
        elif dice < 0.7:
            likely = draw.choice(BASES)[first.num_tokens % 4 :]  # goes on as others do
            self.append(three, draw.choice((likely, [draw.randrange(2) for _ in range(6)]))[: draw.randrange(1, 7)])
        elif dice < 0.74:
            self.cut(three, draw.randrange(5))
        elif dice < 0.78 and len(live) < 6:
            self.fork(three)
        elif dice < 0.85:
            self.free(three)
            self.away.append(three)
        elif dice < 0.91 and self.away:
            self.allocate(self.away.pop(draw.randrange(len(self.away))))
        elif dice < 0.912 and len(extras) > 1:
            self.version += 1
            for cache in self.managers:
                cache.set_weights_version(str(self.version % 2))
        elif dice < 0.92:
            while live:
                self.free(live[-1])
            for cache in self.managers:
                cache.reset()
            self.look(cleared=True)
        else:
            self.free(three)


@pytest.mark.parametrize("extras", [KEYS[:1], [*KEYS[:1] * 5, *KEYS]], ids=["one key", "several keys"])
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9), size=st.integers(1, 4), num_blocks=st.integers(6, 24))
def test_reasons_and_ages_of_what_was_generated_are_those_that_snapshots_give(
    extras: list[ExtraKeys], seed: int, size: int, num_blocks: int
) -> None:
    draw, caches = random.Random(seed), Triplets(size, num_blocks)
    for _ in range(120):
        caches.step(draw, extras)
    kept, *counting = caches.ledgers
    expected = caches.expected
    assert rows_of(kept) == [{name: None if value == -1 else value for name, value in row.items()} for row in expected]
    for ledger in caches.ledgers:
        assert +ledger.counts == caches.first
        assert +(ledger.counts + ledger.repeated) == Counter(row["reason"] for row in expected)
        assert ledger.shared_tokens == sum(row["shared_tokens"] or 0 for row in expected)
        assert sum(ledger.differing.values()) == sum(row["reason"] == "key_differs" for row in expected)
        assert ledger.at_hit.requests() == Counter(row["age"] for row in expected if row["reason"] == "hit")
        assert ledger.at_miss.requests() == Counter(row["age"] for row in expected if row["reason"] == "evicted")
    for ledger in counting:
        assert ledger.num_known == kept.num_known
        assert ledger.tree.num_prefixes == kept.tree.num_prefixes
        assert ledger.at_eviction.requests() == kept.at_eviction.requests()


@pytest.mark.parametrize("allocator", SHARING)
def test_tokens_taken_back_after_a_second_lookup_were_never_cached(allocator: str) -> None:
    manager, ledger = CacheManager(sharing_allocator(allocator, 20, 2, evictor=build("evictor", "lru"))), Ledger(2)
    manager.observe(ledger)
    seq = Sequence(PackedTokens.of([0, 0]), Access(0))
    manager.allocate(seq)
    manager.append(seq, [5, 5])
    manager.free(seq)
    manager.allocate(seq)  # looked up with what it had generated
    manager.truncate(seq, 2)
    manager.append(seq, [7, 7])
    manager.promote_to_immutable(seq, 4)
    for index, prompt in enumerate(([0, 0, 5, 5, 1], [0, 0, 7, 7, 1]), 1):
        manager.allocate(Sequence(PackedTokens.of(prompt), Access(index)))
    assert +ledger.counts == {"first_seen": 1, "hit": 3, "not_cached": 1}
