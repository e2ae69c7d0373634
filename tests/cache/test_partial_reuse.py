"""`partial_reuse`: a prompt is computed from the first token on that no resident block agrees with."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conf import build

from cache.access import Access
from cache.allocator.radix import Radix
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens, TraceTokens


def cache(num_blocks: float = float("inf"), block_size: int = 4) -> CacheManager:
    return CacheManager(Radix(num_blocks, block_size, BuiltinHash(), build("evictor", "lru"), partial_reuse=True))


def serve(manager: CacheManager, tokens: Any, index: int = 0) -> tuple[int, Sequence]:
    seq = Sequence(tokens if isinstance(tokens, TraceTokens) else PackedTokens.of(tokens), Access(index))
    reused = manager.allocate(seq)
    manager.promote_to_immutable(seq, seq.num_tokens)
    return reused, seq


def num_common(a: list[int], b: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), max_size=12), st.integers(1, 6))
def test_what_is_reused_is_the_longest_prefix_shared_with_any_full_block_before(
    prompts: list[list[int]], block_size: int
) -> None:
    manager, before = cache(block_size=block_size), list[list[int]]()
    for i, prompt in enumerate(prompts):
        reused, seq = serve(manager, prompt, i)
        assert reused == min(max((num_common(prompt, other) for other in before), default=0), len(prompt) - 1)
        manager.free(seq)
        manager.check_integrity()
        before.append(prompt[: len(prompt) // block_size * block_size])


def test_it_is_counted_apart_from_whole_blocks() -> None:
    manager = cache()
    manager.free(serve(manager, range(16))[1])
    reused, seq = serve(manager, [*range(10), 99, 98], 1)
    assert (reused, seq.num_hit_blocks) == (10, 2)
    stats = manager.allocator.stats
    assert (stats.hits, stats.partial_hits, stats.partial_hit_tokens) == (2, 1, 2)
    assert seq.partial_copy == (2, seq.block_table[2])


def test_the_source_is_not_evicted_to_make_room_for_its_copy() -> None:
    manager = cache(num_blocks=3)
    manager.free(serve(manager, range(4))[1])
    manager.free(serve(manager, range(50, 58), 1)[1])
    reused, seq = serve(manager, [0, 1, 2, 9, 9], 2)
    assert reused == 3
    assert seq.partial_copy is not None
    assert seq.partial_copy[0] not in seq.block_table
    manager.check_integrity()


def test_where_the_source_itself_is_the_room_it_is_evicted_and_nothing_is_reused() -> None:
    manager = cache(num_blocks=1)
    manager.free(serve(manager, range(4))[1])
    reused, seq = serve(manager, [0, 1, 9], 1)
    assert reused == 0
    assert seq.partial_copy is None
    manager.check_integrity()


def test_a_policy_that_fails_leaves_the_source_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from cache.errors import PolicyError

    manager = cache(num_blocks=4)
    manager.free(serve(manager, range(16))[1])

    def fail(count: int) -> None:
        raise PolicyError("no idea")

    monkeypatch.setattr(manager.allocator, "evict", fail)
    with pytest.raises(PolicyError, match="no idea"):
        manager.allocate(Sequence(PackedTokens.of([0, 1, 9, 9, 9]), Access(1)))
    manager.check_integrity()
    assert manager.allocator.num_idle == 4


def test_blocks_that_a_trace_only_names_share_nothing_below_their_size() -> None:
    manager = cache()
    manager.free(serve(manager, TraceTokens([1, 2], 8, 4))[1])
    assert serve(manager, TraceTokens([1, 3], 8, 4), 1)[0] == 4


def test_a_request_that_skips_the_lookup_copies_nothing() -> None:
    manager = cache()
    manager.free(serve(manager, range(8))[1])
    seq = Sequence(PackedTokens.of(range(7)), Access(1), skip_lookup=True)
    assert manager.allocate(seq) == 0


def test_a_replay_reports_it_beside_the_rates_and_only_where_it_is_looked_for() -> None:
    from experiments.replay import replay
    from experiments.workload.shared_prefix import SharedPrefix

    workload = SharedPrefix(num_requests=8, num_prefixes=1, prefix_tokens=10, suffix_tokens=9)
    told = replay(workload, cache())
    plain = replay(workload, CacheManager(Radix(float("inf"), 4, BuiltinHash(), build("evictor", "lru"))))
    assert (told["partial_hits"], told["partial_hit_tokens"]) == (7, 14), "two blocks of 4, then 2 tokens more"
    assert "partial_hits" not in plain
    assert told["token_hit_rate"] == plain["token_hit_rate"]
