"""Offsets pass 2^31 elements long before a GPU's memory ends. Here they index a sparse file: few pages exist."""

from __future__ import annotations

import pytest
import torch

from kernels.attention import naive, split_kv, varlen
from kernels.copy import blocks
from kernels.write import scatter

BLOCKS, STRIDE = 5, 2**30  # elements between blocks: the last one starts at 2^32


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """Two fp16 pools of 5 blocks, 8 slots, 2 heads, 32 dims whose blocks lie 2 GiB apart."""
    if torch.cuda.is_available():
        pytest.skip("a GPU's memory is not sparse")
    pools = []
    for name in ("k", "v"):
        path = tmp_path_factory.mktemp("huge") / name
        flat = torch.from_file(str(path), shared=True, size=BLOCKS * STRIDE, dtype=torch.float16)
        pools.append(flat.as_strided((BLOCKS, 8, 2, 32), (STRIDE, 64, 32, 1)))
    return pools


@pytest.mark.parametrize("attention", [varlen.attention, split_kv.attention])
def test_attention_reads_blocks_past_2_to_the_31(attention, huge, make_case, agree):
    case = make_case([1, 2], [13, 20], block_size=8, dim=32, dtype=torch.float16)
    order = torch.tensor([[4, 3, -1], [2, 1, 0]], dtype=torch.int32)
    for r in range(2):
        for i in range(-(-int(case.seq_lens[r]) // 8)):
            huge[0][order[r, i]] = case.k_cache[case.block_table[r, i]]
            huge[1][order[r, i]] = case.v_cache[case.block_table[r, i]]
    expected = naive.attention(*case.args(), return_lse=True)
    case.k_cache, case.v_cache, case.block_table = *huge, order
    agree(attention(*case.args(), return_lse=True, validate=True), expected, torch.float16)


def test_scatter_writes_slots_past_2_to_the_31(huge):
    k, v = torch.randn(2, 2, 32).half(), torch.randn(2, 2, 32).half()
    scatter.scatter(k, v, *huge, torch.tensor([4 * 8 + 3, 2 * 8]), validate=True)
    assert torch.equal(huge[0][4, 3], k[0])
    assert torch.equal(huge[1][2, 0], v[1])


def test_copy_reaches_blocks_past_2_to_the_31(huge):
    huge[0][1] = torch.randn(8, 2, 32).half()
    blocks.copy_blocks(blocks.pool_table(huge), torch.tensor([1]), torch.tensor([4]), validate=True)
    assert torch.equal(huge[0][4], huge[0][1])


def test_queries_and_outputs_may_lie_that_far_apart_too(huge, make_case, agree):
    case = make_case([3], [5], block_size=8, dim=32, heads=2, dtype=torch.float16)
    expected = naive.attention(*case.args(), return_lse=True)
    wide = huge[0][:3, 0]
    wide.copy_(case.q)
    case.q = wide
    agree(varlen.attention(*case.args(), return_lse=True), expected, torch.float16)
