"""Blocks of all layers moved in one launch, whatever their shapes and dtypes."""

from __future__ import annotations

import pytest
import torch

from kernels.copy import blocks, naive


@pytest.fixture
def pools():
    torch.manual_seed(0)
    return [
        torch.randn(7, 24, 2, 80),
        torch.randn(7, 2, 16, 64).half().transpose(1, 2),  # head-major
        torch.randint(-100, 100, (7, 16, 1, 8)).to(torch.int8),
        torch.randn(7, 3, 16, 2, 64)[:, 1],  # K beside V beside something else: blocks lie apart
    ]


@pytest.fixture
def ours(pools):
    """The same memory layout, copied: `clone` would make a sliced pool dense."""
    clones = [p.clone(memory_format=torch.preserve_format) for p in pools[:3]]
    wide = torch.zeros(7, 3, 16, 2, 64)
    wide[:, 1] = pools[3]
    return [*clones, wide[:, 1]]


def same(left, right):
    return all(torch.equal(a.cpu(), b) for a, b in zip(left, right, strict=True))


def test_copy_on_write_copies_every_layer(pools, ours, device):
    ours = [p.to(device) for p in ours]
    src, dst = torch.tensor([0, 1, 99, 2, 0]), torch.tensor([5, 6, 3, -1, 4])
    blocks.copy_blocks(blocks.pool_table(ours), src.to(device), dst.to(device))
    naive.copy_blocks(pools, src, dst)
    assert same(ours, pools)


def test_gather_then_scatter_brings_blocks_back(pools, ours, device):
    ours = [p.to(device) for p in ours]
    table, ids = blocks.pool_table(ours), torch.tensor([3, 1, 6])
    buffer = torch.zeros(3, table.bytes_per_block, dtype=torch.uint8)
    mine = buffer.to(device)
    blocks.gather_blocks(table, ids.to(device), mine, validate=True)
    naive.gather_blocks(pools, ids, buffer)
    assert torch.equal(mine.cpu(), buffer)
    for pool in ours:
        pool[ids.to(device)] = 0
    blocks.scatter_blocks(table, ids.to(device), mine, validate=True)
    assert same(ours, pools)


def test_scatter_writes_only_the_named_blocks(pools, ours, device):
    ours = [p.to(device) for p in ours]
    table, ids = blocks.pool_table(ours), torch.tensor([2, -1, 50])
    buffer = torch.randint(0, 100, (3, table.bytes_per_block), dtype=torch.uint8)
    blocks.scatter_blocks(table, ids.to(device), buffer.to(device))
    naive.scatter_blocks(pools, ids, buffer)
    for a, b in zip(ours, pools, strict=True):
        assert torch.equal(a.cpu().contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def test_blocks_larger_than_a_tile_move_whole(device):
    big = torch.randn(3, 128, 4, 64, device=device)
    expected = big[0].clone()
    index = torch.tensor([0], device=device)
    blocks.copy_blocks(blocks.pool_table([big]), index, index + 2, validate=True)
    assert torch.equal(big[2], expected)


def test_no_blocks_move_nothing(pools, device):
    table = blocks.pool_table(pools if device == "cpu" else [p.to(device) for p in pools[:1]])
    none = torch.zeros(0, dtype=torch.int64, device=device)
    blocks.copy_blocks(table, none, none, validate=True)


@pytest.mark.parametrize(
    ("src", "dst", "name"),
    [([0, 1], [2], "dst_ids"), ([0, 9], [2, 3], "src_ids"), ([0, 1], [2, 2], "dst_ids"), ([0, 1], [2, 0], "dst_ids")],
    ids=["lengths", "range", "twice", "overlap"],
)
def test_copies_that_would_race_or_miss_are_refused(src, dst, name, device):
    table = blocks.pool_table([torch.zeros(7, 16, 1, 8, device=device)])
    with pytest.raises(ValueError, match=rf"^{name}"):
        blocks.copy_blocks(table, torch.tensor(src, device=device), torch.tensor(dst, device=device), validate=True)


def test_pools_with_gaps_or_odd_sizes_are_refused(device):
    with pytest.raises(ValueError, match=r"^pools.*dense"):
        blocks.pool_table([torch.zeros(7, 16, 2, 16, device=device)[:, :, :, :8]])
    with pytest.raises(ValueError, match=r"^pools.*16 bytes"):
        blocks.pool_table([torch.zeros(7, 1, 1, 3, device=device)])


def test_pools_without_blocks_or_with_blocks_that_overlap_are_refused(device):
    with pytest.raises(ValueError, match=r"^pools must have at least one block"):
        blocks.pool_table([torch.zeros(0, 16, 1, 8, device=device)])
    with pytest.raises(ValueError, match=r"^pools.*overlap"):
        blocks.pool_table([torch.zeros(1, 16, 1, 8, device=device).expand(5, 16, 1, 8)])
    assert blocks.pool_table([torch.zeros(1, 16, 1, 8, device=device).expand(1, 16, 1, 8)]).num_blocks == 1


def test_a_buffer_of_another_width_is_refused(device):
    table = blocks.pool_table([torch.zeros(7, 16, 1, 8, device=device)])
    with pytest.raises(ValueError, match=r"^buffer"):
        blocks.gather_blocks(
            table, torch.tensor([1], device=device), torch.zeros(1, 16, dtype=torch.uint8, device=device)
        )
