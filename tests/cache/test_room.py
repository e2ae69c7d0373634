"""FIELD: who gets room in the pool, what has to give way, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.sequences import finish, sequence

from cache.allocator.naive import Naive
from cache.errors import OutOfBlocks, PolicyError, SequenceTooLarge
from cache.evictor.lru import Lru
from cache.manager import CacheManager
from cache.sequence import Sequence

Make = Callable[..., Any]
"""The fixtures `manager` and `sharing`: once per allocator that shares prefixes."""


def test_shared_blocks_cost_nothing_and_the_watermark_tells_the_truth(manager: Make) -> None:
    cache = manager(num_blocks=4)
    first = sequence(range(13))
    cache.allocate(first)
    cache.promote_to_immutable(first, 13)
    assert cache.allocator.num_free == 0
    second = sequence([*range(12)])
    assert not cache.can_allocate(second), "its last block must be computed anew and there is none"
    cache.free(first)
    assert cache.can_allocate(second)
    assert not cache.can_allocate(sequence(range(100, 117)))
    assert CacheManager(cache.allocator, watermark=0.5).can_allocate(sequence(range(100, 108)))
    assert not CacheManager(cache.allocator, watermark=0.5).can_allocate(sequence(range(100, 109)))


def test_idle_blocks_of_the_matched_prefix_are_not_counted_twice(manager: Make) -> None:
    cache = manager(num_blocks=4)
    first = sequence(range(16))
    cache.allocate(first)
    finish(cache, first)
    assert cache.allocator.num_available == 4
    longer = sequence(range(17))
    assert not cache.can_allocate(longer)


def test_allocation_is_all_or_nothing(manager: Make) -> None:
    cache = manager(num_blocks=4)
    held = sequence(range(9))
    cache.allocate(held)
    before = (cache.allocator.num_free, cache.allocator.num_in_use)
    with pytest.raises(OutOfBlocks, match="2 blocks are needed"):
        cache.allocate(sequence(range(50, 58)))
    assert (cache.allocator.num_free, cache.allocator.num_in_use) == before
    cache.check_integrity()


def test_a_sequence_larger_than_the_pool_is_refused_with_the_sizes(manager: Make) -> None:
    with pytest.raises(SequenceTooLarge, match="33 tokens need 9 blocks of 4; the whole pool has 8"):
        manager().allocate(sequence(range(33)))


def test_an_empty_sequence_is_refused(manager: Make) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        manager().allocate(sequence([]))


def test_nothing_is_evicted_while_free_blocks_remain(manager: Make) -> None:
    cache = manager(num_blocks=4)
    for i in range(4):
        cache.allocate(seq := sequence([i] * 4, i))
        finish(cache, seq)
    assert cache.allocator.stats.evictions == 0
    cache.allocate(sequence([9] * 4, 9))
    assert cache.allocator.stats.evictions == 1


def test_an_evicted_block_loses_its_key_before_it_is_used_again(manager: Make) -> None:
    cache = manager(num_blocks=1)
    cache.allocate(seq := sequence([1] * 4))
    finish(cache, seq)
    cache.allocate(seq := sequence([2] * 4))
    assert not cache.allocator.find(sequence_ready(cache, [1] * 5), 1).blocks


def sequence_ready(cache: CacheManager, tokens: list[int]) -> Sequence:
    seq = sequence(tokens)
    cache.can_allocate(seq)
    return seq


def test_what_was_asked_is_asked_again_if_the_cache_changed_before_it_was_done(manager: Make) -> None:
    cache = manager(num_blocks=3)
    cache.allocate(first := sequence(range(4)))
    finish(cache, first)
    cache.allocate(other := sequence([7] * 4, 1))
    waiting = sequence(range(5), 2)
    assert cache.can_allocate(waiting)
    cache.append(other, [7] * 8)  # evicts what `waiting` had matched
    cache.free(other)
    assert cache.allocate(waiting) == 0
    cache.check_integrity()


@pytest.mark.parametrize("bad", [0, -1, 2.5])
def test_a_pool_or_block_of_no_size_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="num_blocks"):
        Naive(bad, 4)
    with pytest.raises(ValueError, match="block_size"):
        Naive(4, bad)  # type: ignore[arg-type]


def test_an_unbounded_pool_never_evicts(manager: Make) -> None:
    cache = manager(num_blocks=float("inf"), watermark=0.1)
    for i in range(50):
        seq = sequence([i] * 40, i)
        assert cache.can_allocate(seq)
        cache.allocate(seq)
        finish(cache, seq)
    assert cache.allocator.stats.evictions == 0
    assert cache.allocator.num_idle == 500


def test_a_policy_that_chooses_a_block_in_use_is_caught(sharing: Make) -> None:
    class Rogue(Lru):
        def victims(self, count, uncover):  # type: ignore[no-untyped-def]
            uncover(self.rogue)

    evictor = Rogue()
    cache = CacheManager(sharing(2, 4, evictor=evictor))
    cache.allocate(seq := sequence(range(4)))
    cache.promote_to_immutable(seq, 4)
    evictor.rogue = seq.block_table[0]
    cache.allocate(idle := sequence([5] * 4))
    finish(cache, idle)
    with pytest.raises(PolicyError, match="Rogue chose block"):
        cache.allocate(sequence([6] * 4))


def test_growing_beyond_the_whole_pool_is_told_apart_from_waiting_for_room(manager: Make) -> None:
    cache = manager(num_blocks=2)
    cache.allocate(seq := sequence(range(8)))
    with pytest.raises(SequenceTooLarge, match="9 tokens need 3 blocks"):
        cache.append(seq, [8])
    assert seq.num_tokens == 8


def test_a_failing_policy_leaves_the_books_balanced(sharing: Make) -> None:
    class Failing(Lru):
        def victims(self, count, uncover):  # type: ignore[no-untyped-def]
            raise PolicyError("no idea")

    cache = CacheManager(sharing(3, 4, evictor=Failing()))
    cache.allocate(first := sequence(range(12)))
    finish(cache, first)
    with pytest.raises(PolicyError, match="no idea"):
        cache.allocate(second := sequence([*range(8), 50], 1))
    assert not second.allocated
    cache.check_integrity()
