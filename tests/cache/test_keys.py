"""FIELD: what two prompts may and may not share, and what makes an entry unreachable for ever."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conf import build, options
from support.hashers import WeakHash

from cache.access import Access
from cache.errors import CacheInUse
from cache.extra_keys import ExtraKeys
from cache.hashing.base import Hasher
from cache.manager import CacheManager
from cache.sequence import Sequence
from cache.tokens import PackedTokens, TraceTokens

HASHERS = options("hasher")


Make = Callable[..., Any]


@pytest.fixture
def manager(sharing: Make) -> Make:
    """`manager(hasher)`: one over each allocator that shares prefixes, whatever it does with keys."""

    def make(hasher: Hasher | None = None, num_blocks: int = 64, block_size: int = 4) -> CacheManager:
        return CacheManager(sharing(num_blocks, block_size, hasher=hasher or build("hasher", "builtin")))

    return make


def run(cache: CacheManager, tokens: list[int], extra: ExtraKeys = ExtraKeys(), index: int = 0) -> int:
    """One request from allocate to free; its hit tokens."""
    seq = Sequence(PackedTokens.of(tokens), Access(index), extra)
    hit = cache.allocate(seq)
    cache.promote_to_immutable(seq, len(tokens))
    cache.free(seq)
    cache.check_integrity()
    return hit


def test_the_same_tokens_at_another_position_never_hit(manager: Make) -> None:
    cache = manager()
    run(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert run(cache, [5, 6, 7, 8, 1, 2, 3, 4, 9]) == 0


def test_nothing_after_the_first_miss_is_used(manager: Make) -> None:
    cache = manager()
    run(cache, [*range(12), 99])
    assert run(cache, [*range(4), 50, 51, 52, 53, *range(8, 12), 99]) == 4


def test_the_last_prompt_token_is_always_computed(manager: Make) -> None:
    cache = manager()
    run(cache, list(range(8)))
    assert run(cache, list(range(8))) == 4
    assert run(cache, list(range(9))) == 8


def test_the_last_block_of_a_resident_prompt_is_cached_once_and_chains_on(manager: Make) -> None:
    cache = manager()
    run(cache, list(range(8)))
    free = cache.allocator.num_free
    run(cache, list(range(8)))
    assert cache.allocator.num_free == free, "the duplicate was given back"
    assert run(cache, list(range(12))) == 8


@pytest.mark.parametrize("values", [1, 2, 3])
def test_a_forced_collision_is_a_miss_and_never_a_wrong_block(values: int, manager: Make) -> None:
    cache = manager(WeakHash(values))
    run(cache, [1, 2, 3, 4, 9])
    assert run(cache, [5, 6, 7, 8, 9]) == 0
    assert run(cache, [1, 2, 3, 4, 9]) == 4


def test_a_block_whose_parent_collides_is_a_miss(manager: Make) -> None:
    class SameRootedHash(WeakHash):
        """First blocks all collide, later ones do not."""

        def chain(self, parent, contents):  # type: ignore[no-untyped-def]
            return [(i, content if i else None) for i, content in enumerate(contents)]

    cache = manager(SameRootedHash(1))
    run(cache, [1, 1, 1, 1, 7, 7, 7, 7, 0])
    assert run(cache, [2, 2, 2, 2, 7, 7, 7, 7, 0]) == 0


@pytest.mark.parametrize("name", HASHERS)
def test_algebraic_near_collisions_have_different_keys(name: str) -> None:
    hasher = build("hasher", name)
    root = hasher.root(b"")
    near = [[100 + 31 * d, 200 - d, 300] for d in range(-3, 4)] + [[100, 200 + 31 * d, 300 - d] for d in (-2, -1, 1, 2)]
    as_content = [PackedTokens.of([*tokens, 0]).contents(4)[0] for tokens in near]
    keys = [hasher.chain(root, [content])[0] for content in as_content]
    assert len(set(keys)) == len(set(as_content))
    swapped = [hasher.chain(root, [a, b])[1] for a in as_content for b in as_content]
    assert len(set(swapped)) == len(set(as_content)) ** 2


@pytest.mark.parametrize("name", HASHERS)
def test_keys_differ_between_roots_and_between_the_ways_a_content_is_written(name: str) -> None:
    hasher = build("hasher", name)
    assert hasher.root(b"") != hasher.root(b"\0")
    contents = [b"\5" + bytes(7), 5, (5,), (5, 0)]
    assert len({hasher.chain(hasher.root(b""), [content])[0] for content in contents}) == len(contents)


@pytest.mark.parametrize("name", HASHERS)
@given(st.lists(st.binary(min_size=4, max_size=4), max_size=6), st.integers(0, 6))
def test_a_chain_may_be_hashed_in_pieces(name: str, contents: list[bytes], cut: int) -> None:
    hasher = build("hasher", name)
    whole = hasher.chain(hasher.root(b""), contents)
    head = hasher.chain(hasher.root(b""), contents[:cut])
    tail = hasher.chain(head[-1] if head else hasher.root(b""), contents[cut:])
    assert head + tail == whole


def test_salts_never_share_and_equal_salts_do(manager: Make) -> None:
    cache = manager()
    tokens = list(range(9))
    run(cache, tokens, ExtraKeys(tenant="a"))
    assert run(cache, tokens, ExtraKeys(tenant="b")) == 0
    assert run(cache, tokens) == 0
    assert run(cache, tokens, ExtraKeys(tenant="a")) == 8


def test_no_kind_of_extra_key_aliases_another() -> None:
    text = st.text(max_size=3) | st.none()
    keys = st.builds(ExtraKeys, lora=text, lora_version=text, tenant=text, caller=text)

    @given(keys, keys, st.text(max_size=2), st.text(max_size=2))
    def injective(a: ExtraKeys, b: ExtraKeys, version_a: str, version_b: str) -> None:
        assert (a.encode(version_a) == b.encode(version_b)) == ((a, version_a) == (b, version_b))

    injective()
    same = [ExtraKeys(lora="x"), ExtraKeys(lora_version="x"), ExtraKeys(tenant="x"), ExtraKeys(caller="x")]
    for a, b in combinations(same, 2):
        assert a.encode() != b.encode()


def test_an_adapter_of_the_same_name_with_new_content_misses(manager: Make) -> None:
    cache = manager()
    run(cache, list(range(9)), ExtraKeys(lora="sql", lora_version="1"))
    assert run(cache, list(range(9)), ExtraKeys(lora="sql", lora_version="2")) == 0


def test_new_weights_miss_even_while_old_blocks_are_live(manager: Make) -> None:
    cache = manager()
    old = Sequence(PackedTokens.of(range(9)), Access(0))
    cache.allocate(old)
    cache.promote_to_immutable(old, 4)
    cache.set_weights_version("2")
    assert run(cache, list(range(9))) == 0
    cache.promote_to_immutable(old, 9)  # half old, half new: nobody may ever find it
    cache.free(old)
    cache.set_weights_version("")
    assert run(cache, list(range(9))) == 4, "what was computed before the change is right under the old version"


def test_reset_clears_the_index_in_the_same_step_and_refuses_while_blocks_are_held(manager: Make) -> None:
    cache = manager()
    run(cache, list(range(9)))
    held = Sequence(PackedTokens.of(range(9)), Access(1))
    cache.allocate(held)
    with pytest.raises(CacheInUse, match="1 sequences hold blocks"):
        cache.reset()
    cache.free(held)
    cache.reset()
    assert cache.allocator.num_free == cache.allocator.num_blocks
    assert run(cache, list(range(9))) == 0


def test_traces_at_a_finer_and_a_coarser_block_size_hit_the_same_tokens(manager: Make) -> None:
    prompts = [TraceTokens([0, 1, 2, 3], 64, 16), TraceTokens([0, 1, 5], 40, 16), TraceTokens([0, 1, 2, 9], 60, 16)]
    for block_size, expected in [(16, [0, 32, 48]), (8, [0, 32, 48]), (32, [0, 32, 32]), (12, [0, 24, 48])]:
        cache = manager(block_size=block_size)
        hits = []
        for i, tokens in enumerate(prompts):
            seq = Sequence(tokens, Access(i))
            hits.append(cache.allocate(seq))
            cache.promote_to_immutable(seq, len(tokens))
            cache.free(seq)
        assert hits == expected
