"""A point says what is wrong with it, and its tensors are what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.ablation.point import PLACEMENTS, Point, small
from experiments.ablation.tensors import attention_inputs, table_of

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"block_size": 0}, "block_size must be a positive whole number, got 0"),
        ({"batch": 1.5}, "batch must be a positive whole number, got 1.5"),
        ({"gqa_ratio": True}, "gqa_ratio must be a positive whole number, got True"),
        ({"num_splits": 0}, "num_splits must be a positive whole number, or null, got 0"),
        ({"tile_kv": "big"}, "tile_kv must be a positive whole number, or null, got 'big'"),
        ({"dtype": "fp64"}, "dtype must be one of fp16, bf16, fp32, got 'fp64'"),
        ({"kv_dtype": "fp4"}, "kv_dtype must be one of fp8e4m3"),
        ({"placement": "heap"}, "placement must be one of contiguous, strided, shuffled, got 'heap'"),
        ({"query_len": 5, "context": 4}, "query_len must be at most context=4, got 5"),
        ({"shared_prefix": 17}, "shared_prefix must be a multiple of block_size=16"),
        ({"shared_prefix": 4096}, "at most 4095 (before the queries)"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_may_be(fields, message):
    with pytest.raises(ValueError) as error:
        Point(**fields)
    assert message in str(error.value)


@given(
    st.builds(
        Point,
        block_size=st.sampled_from([1, 3, 16, 256]),
        batch=st.integers(1, 9),
        query_len=st.integers(1, 200),
        context=st.integers(200, 5000),
        num_kv_heads=st.integers(1, 9),
        num_splits=st.none() | st.integers(1, 99),
        tile_kv=st.none() | st.sampled_from([16, 128]),
        placement=st.sampled_from(PLACEMENTS),
    )
)
def test_the_small_sibling_is_the_same_kind_of_call(point):
    sibling = small(point)
    same = ("block_size", "head_dim", "gqa_ratio", "dtype", "kv_dtype", "scales", "placement", "tile_kv", "num_warps")
    assert all(getattr(sibling, name) == getattr(point, name) for name in same)
    assert sibling.num_tokens * sibling.context <= 3 * 19 * (256 + 2 * 128 + 22)
    assert (sibling.query_len == 1) == (point.query_len == 1)
    assert (sibling.num_splits == 1) == (point.num_splits == 1)
    assert small(sibling) == sibling


def test_a_shared_prefix_stays_shared_in_the_small_sibling():
    point = Point(block_size=24, context=2400 + 100, shared_prefix=2400)
    assert small(point).shared_prefix == 48


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_placement_gives_every_request_blocks_of_its_own_in_the_order_it_names(placement):
    point = Point(batch=3, context=70, block_size=16, placement=placement)
    table = table_of(point, torch.Generator().manual_seed(1), CPU)
    assert table.dtype == torch.int32
    assert sorted(table.flatten().tolist()) == list(range(15))
    if placement == "contiguous":
        assert table[1].tolist() == [5, 6, 7, 8, 9]
    if placement == "strided":
        assert table[1].tolist() == [1, 4, 7, 10, 13]


def test_requests_share_the_blocks_of_a_shared_prefix_and_no_others():
    point = Point(batch=3, context=70, block_size=16, shared_prefix=32)
    table = table_of(point, torch.Generator().manual_seed(1), CPU)
    assert bool((table[:, :2] == table[0, :2]).all())
    assert len(set(table[:, 2:].flatten().tolist())) == 9


@pytest.mark.parametrize("dtype", [None, "fp8e4m3", "int8"])
def test_what_nobody_wrote_is_nan_wherever_the_dtype_has_one(dtype):
    scales = "none" if dtype is None else "token"
    point = Point(batch=2, context=70, num_kv_heads=1, dtype="fp16", kv_dtype=dtype, scales=scales)
    pool = attention_inputs(point, CPU, seed=3).pool
    for r in range(2):
        last = pool.k_cache[int(pool.block_table[r, -1])].float()
        assert bool(torch.isfinite(last[:6]).all())
        assert dtype == "int8" or bool(torch.isnan(last[6:]).all())
    assert dtype == "int8" or bool(torch.isnan(pool.v_cache[-1].float()).all())
    assert (pool.k_scale is None) == (dtype is None)


def test_another_seed_gives_other_numbers_and_the_same_seed_the_same():
    point = replace(small(Point()), dtype="fp16")
    a, b, c = (attention_inputs(point, CPU, seed).q for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
