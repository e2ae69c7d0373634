"""KV tensors: blocks move whole, in every layer, and what nobody wrote is NaN under poison."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cache.errors import MisuseError
from cache.store import KVStore


def filled(dtype: torch.dtype = torch.float32, **options: object) -> KVStore:
    store = KVStore(6, 4, 3, 2, 8, 16, dtype=dtype, num_host_blocks=4, **options)
    g = torch.Generator().manual_seed(0)
    for pool in (*store.k, *store.v):
        pool.copy_(torch.randn(pool.shape, generator=g).to(dtype))
    return store


def contents(store: KVStore, block: int) -> list[torch.Tensor]:
    return [pool[block].clone() for pool in (*store.k, *store.v)]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=6, unique=True), st.sampled_from([torch.float32, torch.float16])
)
def test_a_copy_takes_every_layer_and_nothing_else(ids: list[int], dtype: torch.dtype) -> None:
    store = filled(dtype)
    before = [contents(store, block) for block in range(6)]
    half = len(ids) // 2
    pairs = list(zip(ids[:half], ids[half:], strict=False))
    store.copy(pairs)
    moved = {destination: source for source, destination in pairs}
    assert all(same(contents(store, block), before[moved.get(block, block)]) for block in range(6))


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(6)), st.permutations(range(4)), st.permutations(range(6)))
def test_blocks_come_back_from_the_host_bit_for_bit_wherever_they_land(
    out: list[int], host: list[int], back: list[int]
) -> None:
    store = filled(torch.float16)
    before = [contents(store, block) for block in range(6)]
    store.swap_out(list(zip(out[:4], host, strict=True)))
    for pool in (*store.k, *store.v):
        pool.fill_(7)
    store.swap_in(list(zip(host, back[:4], strict=True)))
    assert all(same(contents(store, back[i]), before[out[i]]) for i in range(4))


def test_empty_lists_move_nothing() -> None:
    store = filled()
    before = [contents(store, block) for block in range(6)]
    store.copy([])
    store.swap_out([])
    store.swap_in([])
    store.poison_blocks([])
    assert all(same(contents(store, block), before[block]) for block in range(6))


@pytest.mark.parametrize(
    ("move", "pairs"), [("copy", [(0, 6)]), ("copy", [(-1, 0)]), ("swap_out", [(0, 4)]), ("swap_in", [(4, 0)])]
)
def test_ids_outside_the_pool_are_refused_and_move_nothing(move: str, pairs: list[tuple[int, int]]) -> None:
    store = filled()
    before = [contents(store, block) for block in range(6)]
    with pytest.raises(MisuseError, match="block ids must lie in"):
        getattr(store, move)(pairs)
    assert all(same(contents(store, block), before[block]) for block in range(6))


def test_poison_fills_what_nobody_wrote_and_what_was_given_back() -> None:
    store = KVStore(3, 4, 2, 1, 8, poison=True)
    assert all(bool(pool.isnan().all()) for pool in (*store.k, *store.v))
    store.k[1].fill_(1)
    store.poison_blocks([2])
    assert bool(store.k[1][2].isnan().all())
    assert bool((store.k[1][:2] == 1).all())


def test_without_poison_poisoning_does_nothing() -> None:
    store = filled()
    store.poison_blocks([0])
    assert not bool(store.k[0].isnan().any())


@pytest.mark.parametrize("side", ["k", "v"])
def test_a_write_past_the_last_block_is_noticed_and_named(side: str) -> None:
    store = KVStore(3, 4, 2, 1, 8, poison=True)
    store.check_guard()
    pool = getattr(store, side)[1]
    torch.as_strided(pool, (1,), (1,), pool.storage_offset() + pool.numel() + 5).fill_(0)
    with pytest.raises(AssertionError, match=rf"{side}\[1\]: the guard block was written"):
        store.check_guard()


def test_a_pool_that_does_not_fit_says_how_much_it_needs() -> None:
    with pytest.raises(MemoryError, match=r"100000000000 KV blocks of 16 tokens .* need .* GiB.*lower num_blocks"):
        KVStore(10**11, 16, 30, 3, 64)


def test_a_size_below_one_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        KVStore(1, 0, 1, 1, 8)
