"""The ledger's reasons against an explanation of every block from snapshots of the cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conf import ONLINE_EVICTORS, SHARING, build, sharing_allocator
from support.explain import History, findable
from support.hashers import WeakHash
from support.ledgers import KEYS, PROMPTS, rows_of
from support.replays import drawn_prompts

from cache.access import Access
from cache.allocator.base import Allocator
from cache.allocator.hash_chain import HashChain
from cache.allocator.naive import Naive
from cache.errors import CacheInUse
from cache.hashing.builtin import BuiltinHash
from cache.ledger import Ledger
from cache.manager import CacheManager
from cache.reasons import REASONS
from cache.sequence import Sequence
from cache.tokens import PackedTokens

STEPS = st.lists(
    st.one_of(
        st.tuples(PROMPTS, st.sampled_from(KEYS), st.integers(0, 7)),
        st.sampled_from(["reset", "weights", "cancel"]),
    ),
    min_size=4,
    max_size=40,
)


@pytest.mark.parametrize("hasher", ["builtin", "colliding"])
@settings(max_examples=100, deadline=None)
@given(
    steps=STEPS, size=st.integers(1, 4), num_blocks=st.integers(4, 14), policy=st.sampled_from(ONLINE_EVICTORS),
    leaf_only=st.booleans(),
)  # fmt: skip
def test_every_block_has_the_reason_that_snapshots_of_the_cache_give(
    hasher: str, steps: list[Any], size: int, num_blocks: int, policy: str, leaf_only: bool
) -> None:
    hashes = BuiltinHash() if hasher == "builtin" else WeakHash(3)
    allocator = HashChain(num_blocks, size, hashes, build("evictor", policy), leaf_only)
    manager, ledger, history = CacheManager(allocator), Ledger(size, full=True), History(size)
    manager.observe(ledger)
    counts_only = Ledger(size)
    twin = CacheManager(HashChain(num_blocks, size, hashes, build("evictor", policy), leaf_only))
    twin.observe(counts_only)
    keys: dict[bytes, Any] = {}
    expected, cancel, hits, looked_up, version = [], False, 0, 0, 0
    history.snapshot(0, 0.0, set())
    for index, step in enumerate(steps):
        if step == "reset":
            manager.reset()
            twin.reset()
            history.snapshot(index, index / 2, set(), cleared=True)
            continue
        if step == "weights":
            version += 1
            manager.set_weights_version(str(version % 2))
            twin.set_weights_version(str(version % 2))
            continue
        if step == "cancel":
            cancel = True
            continue
        prompt, extra, draw = step
        key = (extra, manager.weights_version)
        keys[extra.encode(manager.weights_version)] = key
        access = Access(index, index / 2)
        seq, other = (Sequence(PackedTokens.of(prompt), access, extra, skip_lookup=draw == 0) for _ in "ab")
        if not manager.fits(seq):
            continue
        manager.allocate(seq)
        twin.allocate(other)
        expected += history.explain(seq, key, seq.num_hit_blocks)
        hits += seq.num_hit_blocks
        looked_up += seq.num_tokens // size
        history.request(seq, key)
        history.snapshot(index, index / 2, findable(allocator, keys))  # what was evicted for it is gone
        for cache, one in ((manager, seq), (twin, other)):
            if not cancel:
                cache.promote_to_immutable(one, len(prompt))
            cache.free(one)
        cancel = False
        history.snapshot(index, index / 2, findable(allocator, keys))
    assert rows_of(ledger) == expected
    assert sum(ledger.counts.values()) == looked_up
    assert ledger.counts["hit"] == hits
    for one in (ledger, counts_only):
        assert {k: v for k, v in one.counts.items() if v} == Counter(row["reason"] for row in expected)
        assert one.shared_tokens == sum(row["shared_tokens"] or 0 for row in expected)
        assert sum(one.differing.values()) == one.counts["key_differs"]
        assert one.at_hit.requests() == Counter(row["age"] for row in expected if row["reason"] == "hit")
        assert one.at_miss.requests() == Counter(row["age"] for row in expected if row["reason"] == "evicted")
    assert ledger.at_eviction.total() == allocator.stats.evictions
    assert sum(age * count for age, count in ledger.at_eviction.requests().items()) == allocator.stats.evicted_age


def replayed_with(ledger: Ledger, allocator: Any, prompts: list[tuple[int, ...]]) -> CacheManager:
    manager = CacheManager(allocator)
    manager.observe(ledger)
    for index, prompt in enumerate(prompts):
        seq = Sequence(PackedTokens.of(prompt), Access(index, float(index)))
        manager.allocate(seq)
        manager.promote_to_immutable(seq, len(prompt))
        manager.free(seq)
    return manager


@pytest.mark.parametrize("policy", ONLINE_EVICTORS)
def test_ages_are_those_that_the_allocator_sums_up(policy: str, sharing: Callable[..., Allocator]) -> None:
    ledger, allocator = Ledger(2), sharing(15, 2, evictor=build("evictor", policy))
    replayed_with(ledger, allocator, drawn_prompts(3, count=200))
    total = {"hits": ledger.at_hit, "evictions": ledger.at_eviction}
    assert {name: ages.total() for name, ages in total.items()} == {
        "hits": allocator.stats.hits,
        "evictions": allocator.stats.evictions,
    }
    assert sum(age * count for age, count in ledger.at_hit.requests().items()) == allocator.stats.hit_age
    assert sum(age * count for age, count in ledger.at_eviction.requests().items()) == allocator.stats.evicted_age
    assert all(seconds == requests for ages in total.values() for requests, seconds, _ in ages)


@pytest.mark.parametrize("full", [False, True], ids=["counts", "full"])
@pytest.mark.parametrize("policy", ONLINE_EVICTORS)
def test_every_allocator_that_shares_tells_a_ledger_the_same(policy: str, full: bool) -> None:
    ledgers = []
    for name in SHARING:
        ledger = Ledger(2, full=full)
        replayed_with(
            ledger, sharing_allocator(name, 15, 2, evictor=build("evictor", policy)), drawn_prompts(3, count=200)
        )
        ledgers.append(ledger)
    first, *others = ledgers
    assert first.counts["evicted"]
    for other in others:
        assert (other.counts, other.differing, other.shared_tokens) == (
            first.counts,
            first.differing,
            first.shared_tokens,
        )
        for name in ("at_hit", "at_eviction", "at_miss"):
            assert getattr(other, name).requests() == getattr(first, name).requests()
        if full:
            assert rows_of(other) == rows_of(first)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("lru", "last_request=0 depth=3"),
        ("fifo", "inserted=0 depth=3"),
        ("lfu", "uses=1 last_request=0 depth=3"),
        ("random", None),
    ],
)
def test_an_evicted_block_tells_why_the_policy_chose_it(
    policy: str, words: str | None, sharing: Callable[..., Allocator]
) -> None:
    ledger, allocator = Ledger(1, full=True), sharing(6, 1, evictor=build("evictor", policy))
    replayed_with(ledger, allocator, [(0, 1, 2, 3), (9, 9, 9), (0, 1, 2, 3, 4)])
    rows = ledger.rows
    assert rows is not None
    (row,) = [i for i in range(len(rows)) if REASONS[rows.reason[i]] == "evicted"]
    note = rows.notes[rows.note[row]]
    assert (rows.depth[row], rows.age[row], rows.evicted_ago[row]) == (3, 2, 1)
    assert note == {"decision": words, "victim": 0, "victims": 1}


def test_without_sharing_what_was_seen_before_is_not_cached() -> None:
    ledger = Ledger(2)
    replayed_with(ledger, Naive(8, 2), [(0, 1, 2, 3, 4), (0, 1, 2, 3, 5)])
    assert {k: v for k, v in ledger.counts.items() if v} == {"first_seen": 2, "not_cached": 2}


def test_a_prefix_that_another_request_still_computes_is_not_cached_and_then_a_hit(
    sharing: Callable[..., Allocator],
) -> None:
    ledger = Ledger(2)
    manager = CacheManager(sharing(20, 2))
    manager.observe(ledger)
    first, second, third = (Sequence(PackedTokens.of(range(5)), Access(i)) for i in range(3))
    manager.allocate(first)
    manager.allocate(second)
    manager.promote_to_immutable(first, 3)
    manager.allocate(third)
    manager.promote_to_immutable(second, 5)
    assert {k: v for k, v in ledger.counts.items() if v} == {"first_seen": 2, "not_cached": 3, "hit": 1}


def test_generated_tokens_are_cached_and_hit_by_the_next_turn() -> None:
    ledger = Ledger(2, full=True)
    manager = CacheManager(HashChain(20, 2, BuiltinHash(), build("evictor", "lru")))
    manager.observe(ledger)
    first, other = (Sequence(PackedTokens.of(prompt), Access(i)) for i, prompt in enumerate([(1, 2, 3), (7, 8, 9)]))
    for seq in (first, other):
        manager.allocate(seq)
        manager.promote_to_immutable(seq, 3)
    for seq in (first, other):
        manager.append(seq, [4, 5])
        manager.promote_to_immutable(seq, 5)
        manager.free(seq)
    manager.allocate(Sequence(PackedTokens.of([1, 2, 3, 4, 5, 6, 7]), Access(2)))
    assert ledger.counts["hit"] == 2
    assert [REASONS[code] for code in ledger.rows.reason] == ["first_seen", "first_seen", "hit", "hit", "first_seen"]


def test_a_preempted_request_that_looks_up_again_is_counted_apart() -> None:
    ledger = Ledger(2)
    manager = CacheManager(HashChain(4, 2, BuiltinHash(), build("evictor", "lru")))
    manager.observe(ledger)
    seq = Sequence(PackedTokens.of(range(5)), Access(0))
    for _ in range(2):
        manager.allocate(seq)
        manager.promote_to_immutable(seq, 3)
        manager.free(seq)
    assert {k: v for k, v in ledger.counts.items() if v} == {"first_seen": 2}
    assert {k: v for k, v in ledger.repeated.items() if v} == {"hit": 1, "not_cached": 1}


def test_an_observer_must_see_a_cache_from_the_start() -> None:
    manager = replayed_with(Ledger(2), HashChain(9, 2, BuiltinHash(), build("evictor", "lru")), [(1, 2, 3)])
    with pytest.raises(CacheInUse, match="from the start"):
        manager.observe(Ledger(2))
    manager.reset()
    manager.observe(Ledger(2))
