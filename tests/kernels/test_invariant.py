"""Invariant mode: what a query token gets depends, bit for bit, on its own keys alone."""

from __future__ import annotations

import pytest
import torch

from kernels.attention import naive, split_kv, varlen
from kernels.shipped import Shape, attention_launches
from kernels.tuning import AttentionConfig

LENGTH = 1100  # three segments of 512, the last one short
TILES = AttentionConfig(64, 256)


def run(case, device, variant="varlen", **options):
    options = {"invariant": True, "config": TILES, "return_lse": True} | options
    if variant == "varlen":
        return varlen.attention(*case.args(device), **options)
    return split_kv.attention(*case.args(device), **options)


def cut(case, start, stop):
    """The same request, as a chunk: queries start..stop−1, the keys before them cached."""
    chunk = type(case)(**vars(case))
    chunk.q = case.q[start:stop]
    chunk.query_start_loc = torch.tensor([0, stop - start], dtype=torch.int32)
    chunk.seq_lens = torch.tensor([stop], dtype=torch.int32)
    chunk.max_query_len, chunk.max_seq_len = stop - start, stop
    return chunk


@pytest.fixture(scope="module")
def prompt(make_case):
    case = make_case([LENGTH], [LENGTH], heads=3, kv_heads=1, dim=32, block_size=48)
    case.q = case.q.half()
    case.k_cache, case.v_cache = case.k_cache.half(), case.v_cache.half()
    return case


@pytest.fixture(scope="module")
def whole(prompt, device):
    """All tokens that the tests below compare, from one pass over the prompt's last 300 tokens."""
    out, lse = run(cut(prompt, 800, LENGTH), device)
    return {token: (out[token - 800], lse[token - 800]) for token in range(800, LENGTH)}


def assert_bitwise(out, lse, whole, start):
    for i in range(out.shape[0]):
        assert torch.equal(out[i].view(torch.int16), whole[start + i][0].view(torch.int16))
        assert torch.equal(lse[i].view(torch.int32), whole[start + i][1].view(torch.int32))


@pytest.mark.parametrize(("start", "stop"), [(1099, 1100), (1024, 1025), (1000, 1100), (803, 820), (1020, 1030)])
def test_a_token_does_not_see_where_its_prompt_was_chunked(start, stop, prompt, whole, device):
    assert_bitwise(*run(cut(prompt, start, stop), device), whole, start)


@pytest.mark.parametrize("num_splits", [1, 2, 3, 7])
def test_a_token_does_not_see_the_split_count(num_splits, prompt, whole, device):
    out, lse = run(cut(prompt, 1095, LENGTH), device, "split_kv", num_splits=num_splits)
    assert_bitwise(out, lse, whole, 1095)


def test_a_token_does_not_see_its_batch(prompt, whole, device, make_case):
    chunk = cut(prompt, 1099, LENGTH)
    chunk.q = torch.cat([torch.randn(2, 3, 32).half(), chunk.q, torch.randn(1, 3, 32).half()])
    chunk.query_start_loc = torch.tensor([0, 2, 3, 4], dtype=torch.int32)
    chunk.seq_lens = torch.tensor([700, LENGTH, 30], dtype=torch.int32)
    chunk.block_table = prompt.block_table.repeat(3, 1)
    chunk.max_query_len = 2
    out, lse = run(chunk, device)
    assert_bitwise(out[2:3], lse[2:3], whole, 1099)
    out, lse = run(chunk, device, "split_kv", num_splits=2)
    assert_bitwise(out[2:3], lse[2:3], whole, 1099)


def test_a_token_does_not_see_which_blocks_or_block_size_hold_its_keys(prompt, whole, device):
    chunk = cut(prompt, 1097, LENGTH)
    table = prompt.block_table[0].long()
    for name in ("k_cache", "v_cache"):
        flat = getattr(prompt, name)[table].flatten(0, 1)[:LENGTH]
        padded = torch.cat([flat, torch.full((1152 - LENGTH, 1, 32), float("nan"), dtype=flat.dtype)])
        setattr(chunk, name, padded.view(9, 128, 1, 32).flip(0).contiguous())
    chunk.block_table = torch.arange(8, -1, -1, dtype=torch.int32)[None]
    assert_bitwise(*run(chunk, device), whole, 1097)


@pytest.mark.parametrize("window", [100, 900])
def test_windows_and_sinks_keep_it_so(window, prompt, device):
    options = {"window": window, "sinks": torch.tensor([0.5, 1.0, -2.0]).to(device), "config": AttentionConfig(64, 64)}
    out, lse = run(cut(prompt, 1080, LENGTH), device, **options)
    alone, alone_lse = run(cut(prompt, 1099, LENGTH), device, "split_kv", num_splits=2, **options)
    assert torch.equal(out[-1:], alone)
    assert torch.equal(lse[-1:], alone_lse)


def test_it_still_gives_the_reference(prompt, device, agree):
    chunk = cut(prompt, 1095, LENGTH)
    agree(run(chunk, device), naive.attention(*chunk.args(), return_lse=True), torch.float16)


@pytest.mark.parametrize("variant", ["varlen", "split_kv"])
def test_no_kernel_of_it_may_contract_a_product_and_a_sum(variant):
    launches = attention_launches(variant, Shape(dtype="fp16"), TILES, invariant=True)
    assert not any(launch.fp_fusion for launch in launches)
    assert all(launch.fp_fusion for launch in attention_launches(variant, Shape(dtype="fp16"), TILES))


@pytest.mark.skipif(torch.cuda.is_available(), reason="which bits differ is the GPU's business")
def test_the_fast_mode_does_not_promise_it(prompt, device):
    fast = {"invariant": False, "config": AttentionConfig(64, 64)}
    one, _ = run(cut(prompt, 1095, LENGTH), device, **fast)
    three, _ = run(cut(prompt, 1095, LENGTH), device, "split_kv", num_splits=3, **fast)
    assert not torch.equal(one, three)
