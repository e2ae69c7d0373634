"""FIELD: who owns a block, when it is given back, and what every operation may cost."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from support.sequences import finish, sequence

from cache.errors import MisuseError
from cache.sequence import Sequence
from cache.tokens import PackedTokens

Make = Callable[..., Any]
"""The fixtures `manager` and `sharing`: once per allocator that shares prefixes."""


def test_release_happens_exactly_once(manager: Make) -> None:
    cache = manager()
    seq = sequence(range(5))
    with pytest.raises(MisuseError, match="never allocated"):
        cache.free(seq)
    cache.allocate(seq)
    with pytest.raises(MisuseError, match="already"):
        cache.allocate(seq)
    cache.free(seq)
    for operation in (
        cache.free,
        cache.fork,
        lambda s: cache.append(s, [1]),
        lambda s: cache.promote_to_immutable(s, 5),
    ):
        with pytest.raises(MisuseError):
            operation(seq)


def test_a_preempted_sequence_finds_its_own_blocks_again(manager: Make) -> None:
    cache = manager()
    cache.allocate(seq := sequence(range(6)))
    cache.promote_to_immutable(seq, 6)
    cache.append(seq, [6, 7, 8])
    cache.promote_to_immutable(seq, 9)
    cache.free(seq)
    assert cache.allocate(seq) == 8
    cache.check_integrity()


def test_a_fork_shares_everything_and_copies_a_shared_tail_before_it_is_written(manager: Make) -> None:
    cache = manager()
    cache.allocate(parent := sequence(range(6)))
    cache.promote_to_immutable(parent, 6)
    child = cache.fork(parent)
    assert child.block_table == parent.block_table
    assert [cache.ref_count(b) for b in parent.block_table] == [2, 2]
    shared_tail = parent.block_table[1]
    copies = cache.append(child, [100])
    assert copies == [(shared_tail, child.block_table[1])]
    assert cache.append(parent, [200]) == [], "the parent is the tail's only owner again"
    assert child.block_table[0] == parent.block_table[0]
    cache.check_integrity()


def test_a_fork_at_a_block_boundary_copies_nothing(manager: Make) -> None:
    cache = manager()
    cache.allocate(parent := sequence(range(8)))
    cache.promote_to_immutable(parent, 8)
    child = cache.fork(parent)
    assert cache.append(child, [1]) == []
    assert child.block_table[:2] == parent.block_table


def test_two_prompts_computed_at_once_end_in_one_cached_block(manager: Make) -> None:
    cache = manager()
    cache.allocate(a := sequence(range(5)))
    cache.allocate(b := sequence(range(5), 1))
    duplicate = b.block_table[0]
    cache.promote_to_immutable(a, 5)
    cache.promote_to_immutable(b, 5)
    assert b.block_table[0] == a.block_table[0]
    assert cache.ref_count(duplicate) == 0
    assert cache.ref_count(a.block_table[0]) == 2
    cache.check_integrity()


def test_only_committed_tokens_can_be_found(manager: Make) -> None:
    cache = manager()
    cache.allocate(seq := sequence(range(4)))
    cache.promote_to_immutable(seq, 4)
    cache.append(seq, [50, 51, 52, 53])  # a draft, rejected after two tokens
    cache.truncate(seq, 6)
    cache.append(seq, [60, 61])
    cache.promote_to_immutable(seq, 8)
    cache.free(seq)
    assert cache.allocate(sequence([*range(4), 50, 51, 52, 53, 0], 1)) == 4
    assert cache.allocate(sequence([*range(4), 50, 51, 60, 61, 0], 2)) == 8


def test_what_is_immutable_or_prompt_cannot_be_taken_back(manager: Make) -> None:
    cache = manager()
    cache.allocate(seq := sequence(range(6)))
    cache.append(seq, [6, 7, 8])
    cache.promote_to_immutable(seq, 8)
    with pytest.raises(MisuseError, match=r"only 8\.\.9"):
        cache.truncate(seq, 7)


def test_a_request_that_skips_the_lookup_still_caches_what_it_computes(manager: Make) -> None:
    cache = manager()
    cache.allocate(seq := sequence(range(9), skip_lookup=True))
    finish(cache, seq)
    again = sequence(range(9), 1, skip_lookup=True)
    assert cache.allocate(again) == 0
    finish(cache, again)
    assert cache.allocate(sequence(range(9), 2)) == 8


def test_the_whole_cached_prefix_is_found_before_a_chunk_is_sized(manager: Make) -> None:
    cache = manager(num_blocks=64)
    cache.allocate(seq := sequence(range(101)))
    finish(cache, seq)
    assert cache.allocate(sequence(range(101), 1)) == 100


def test_slots_are_block_times_size_plus_offset(manager: Make) -> None:
    cache = manager()
    cache.allocate(seq := sequence(range(10)))
    table = seq.block_table
    assert cache.slot_mapping(seq, 0, 10) == [table[i // 4] * 4 + i % 4 for i in range(10)]
    assert cache.slot_mapping(seq, 3, 6) == [table[0] * 4 + 3, table[1] * 4, table[1] * 4 + 1]
    assert cache.slot_mapping(seq, 4, 4) == []
    with pytest.raises(MisuseError, match="have no slots"):
        cache.slot_mapping(seq, 0, 13)


def test_token_ids_outside_int32_are_refused_and_never_wrapped(manager: Make) -> None:
    cache = manager()
    cache.allocate(seq := sequence([1]))
    for bad in (2**31, -1, 2**40):
        with pytest.raises(ValueError, match="int32"):
            cache.append(seq, [bad])
        with pytest.raises(ValueError, match="int32"):
            PackedTokens.of([bad])
    assert seq.num_tokens == 1


def test_two_thousand_requests_leave_the_pool_as_it_was(manager: Make) -> None:
    cache, draw = manager(num_blocks=200), random.Random(7)
    live: list[Sequence] = []
    for i in range(2000):
        seq = sequence([draw.randrange(3) for _ in range(draw.randrange(1, 60))], i)
        while not cache.can_allocate(seq):
            cache.free(live.pop(draw.randrange(len(live))))
        cache.allocate(seq)
        cache.promote_to_immutable(seq, draw.randrange(seq.num_computed_tokens, seq.num_tokens + 1))
        live.append(seq)
        if draw.random() < 0.2:
            live.append(cache.fork(seq))
        if i % 100 == 0:
            cache.check_integrity()
    for seq in live:
        cache.free(seq)
    assert cache.allocator.num_in_use == 0
    assert cache.allocator.num_available == 200
    cache.reset()
    assert cache.allocator.num_free == 200


def test_work_per_request_does_not_grow_with_the_pool(manager: Make) -> None:
    class Counting(list):  # type: ignore[type-arg]
        walks = 0

        def __iter__(self):  # type: ignore[no-untyped-def]
            Counting.walks += 1
            return super().__iter__()

    cache = manager(num_blocks=5000)
    for i in range(1200):
        cache.allocate(seq := sequence([i] * 16, i))
        finish(cache, seq)
    lists = {name: value for name, value in vars(cache.allocator).items() if type(value) is list}
    assert "_free" in lists
    for name, value in lists.items():
        setattr(cache.allocator, name, Counting(value))
    for i in range(1200, 1300):
        cache.allocate(seq := sequence([i] * 16, i))
        finish(cache, seq)
    assert cache.allocator.stats.evictions > 0
    assert Counting.walks == 0, "an operation walked over the whole pool"


def test_a_sequence_belongs_to_one_cache_at_a_time_and_takes_nothing_along(manager: Make) -> None:
    fine, coarse = manager(num_blocks=64, block_size=4), manager(num_blocks=64, block_size=8)
    a, b = sequence(range(32)), sequence([*range(12), *range(100, 120)], 1)
    fine.allocate(a)
    with pytest.raises(MisuseError, match="another cache"):
        coarse.allocate(a)
    fine.free(a)
    fine.can_allocate(b)
    coarse.allocate(a)
    coarse.promote_to_immutable(a, 32)
    assert coarse.allocate(b) == 8, "12 tokens are shared: one block of 8"
