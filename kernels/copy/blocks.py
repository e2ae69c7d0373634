"""Whole blocks of every layer in one launch: copied within the pools, or to and from a contiguous buffer.

A pool is one layer's K or V. Copying needs no more of it than where it starts, how far its blocks lie apart and how
many bytes a block has, so pools of different shapes and dtypes move together:

    buffer row i  =  | pool 0, block ids[i] | pool 1, block ids[i] | ... |        bytes, in memory order

Knows nothing of heads, tokens or dtypes; nor when a copy on the host side is ready (that is the stream's business).
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build, strided
from kernels.checks import check_tensor, check_vector, require
from kernels.launch import Launch, cdiv

WORD = 4  # bytes; four words make one 16-byte access
TILE_WORDS = 4096


@dataclass(frozen=True, slots=True)
class PoolTable:
    """The pools of a cache, as the kernel sees them. Built once, by `pool_table`; keeps the pools alive."""

    pools: tuple[Tensor, ...]
    addresses: Tensor
    block_strides: Tensor
    block_words: Tensor
    buffer_offsets: Tensor
    num_blocks: int
    max_words: int
    row_words: int

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all pools: the width of a buffer row."""
        return self.row_words * WORD


def pool_table(pools: Sequence[Tensor]) -> PoolTable:
    """Describe `pools`, each `[num_blocks, ...]` with dense blocks, all on one device and with as many blocks.

    Raises ValueError where blocks have gaps or overlap, or an address, stride or size is no multiple of 16 bytes.
    """
    require(bool(pools), "pools", "must not be empty")
    device, num_blocks = pools[0].device, pools[0].shape[0]
    require(num_blocks > 0, "pools", "must have at least one block")
    strides, sizes = [], []
    for i, pool in enumerate(pools):
        require(pool.device == device, "pools", f"[{i}] is on {pool.device}, the first on {device}")
        require(pool.shape[0] == num_blocks, "pools", f"[{i}] has {pool.shape[0]} blocks, the first {num_blocks}")
        count = pool[0].numel()
        extent = 1 + sum((n - 1) * s for n, s in zip(pool.shape[1:], pool.stride()[1:], strict=True))
        require(
            extent == count, "pools", f"[{i}] must have dense blocks, got shape {list(pool.shape)}, {pool.stride()}"
        )
        apart = num_blocks == 1 or pool.stride(0) >= count
        require(apart, "pools", f"[{i}] has blocks that overlap: {count} elements every {pool.stride(0)}")
        stride, size = pool.stride(0) * pool.element_size(), count * pool.element_size()
        aligned = pool.data_ptr() % 16 == stride % 16 == size % 16 == 0
        require(aligned, "pools", f"[{i}] must have blocks aligned to 16 bytes, got {size} bytes every {stride}")
        strides.append(stride // WORD)
        sizes.append(size // WORD)
    ends = list(accumulate(sizes, initial=0))

    def metadata(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return PoolTable(
        tuple(pools), metadata([p.data_ptr() for p in pools]), metadata(strides), metadata(sizes), metadata(ends[:-1]),
        num_blocks, max(sizes), ends[-1],
    )  # fmt: skip


@triton.jit
def move_kernel(
    src_ids_ptr,  # [num_ids] blocks to read, or None: rows of the buffer
    dst_ids_ptr,  # [num_ids] blocks to write, or None: rows of the buffer
    buffer_ptr,  # [num_ids, row_words], or None where both sides are pools
    addresses_ptr,  # [num_pools] byte addresses, multiples of 16
    block_strides_ptr,  # [num_pools] words, multiples of 4
    block_words_ptr,  # [num_pools] multiples of 4
    buffer_offsets_ptr,  # [num_pools] words, multiples of 4
    num_blocks,
    stride_buffer_row,
    TILE_WORDS: tl.constexpr,  # power of two
):
    """Grid: (num_ids, num_pools, tiles of the largest block)."""
    row = tl.program_id(0)
    pool = tl.program_id(1)
    offs = tl.program_id(2) * TILE_WORDS + tl.arange(0, TILE_WORDS)
    offs = tl.max_contiguous(tl.multiple_of(offs, 4), TILE_WORDS)
    words = tl.multiple_of(tl.load(block_words_ptr + pool), 4)
    stride = tl.load(block_strides_ptr + pool)
    pool_ptr = tl.load(addresses_ptr + pool).to(tl.pointer_type(tl.int32))
    mask = offs < words
    if buffer_ptr is not None:
        row_ptr = buffer_ptr + row.to(tl.int64) * stride_buffer_row + tl.load(buffer_offsets_ptr + pool)
    if src_ids_ptr is not None:
        src = tl.load(src_ids_ptr + row).to(tl.int64)
        mask = mask & (src >= 0) & (src < num_blocks)
        src_ptr = pool_ptr + src * stride
    else:
        src_ptr = row_ptr
    if dst_ids_ptr is not None:
        dst = tl.load(dst_ids_ptr + row).to(tl.int64)
        mask = mask & (dst >= 0) & (dst < num_blocks)
        dst_ptr = pool_ptr + dst * stride
    else:
        dst_ptr = row_ptr
    values = tl.load(tl.multiple_of(src_ptr, 16) + offs, mask=mask)
    tl.store(tl.multiple_of(dst_ptr, 16) + offs, values, mask=mask)


def plan(table: PoolTable, src_ids: Tensor | None, dst_ids: Tensor | None, buffer: Tensor | None) -> Launch:
    """The launch that moves blocks; None for ids means rows of `buffer`. The checks have passed."""
    ids = src_ids if src_ids is not None else dst_ids
    assert ids is not None
    return build(
        move_kernel,
        (ids.shape[0], len(table.pools), cdiv(table.max_words, TILE_WORDS)),
        strided("buffer", None if buffer is None else buffer.view(torch.int32), "row"),
        num_stages=1,
        src_ids_ptr=src_ids,
        dst_ids_ptr=dst_ids,
        addresses_ptr=table.addresses,
        block_strides_ptr=table.block_strides,
        block_words_ptr=table.block_words,
        buffer_offsets_ptr=table.buffer_offsets,
        num_blocks=table.num_blocks,
        TILE_WORDS=TILE_WORDS,
    )


def copy_blocks(table: PoolTable, src_ids: Tensor, dst_ids: Tensor, *, validate: bool = False) -> None:
    """Copy block src_ids[i] over block dst_ids[i] in every pool (copy-on-write). Ids outside the pool move nothing.

    No destination may be named twice or be a source: all copies run at once. `validate` checks that and the ranges,
    synchronising. Raises ValueError naming the argument.
    """
    check_vector("src_ids", src_ids, None, table.addresses.device)
    check_vector("dst_ids", dst_ids, src_ids.shape[0], table.addresses.device)
    if validate:
        _check_ids("src_ids", src_ids, table, unique=False)
        _check_ids("dst_ids", dst_ids, table, unique=True)
        overlap = set(src_ids.tolist()) & set(dst_ids.tolist())
        require(not overlap, "dst_ids", f"must not be sources too, got {sorted(overlap)}")
    plan(table, src_ids, dst_ids, None).run()


def gather_blocks(table: PoolTable, block_ids: Tensor, buffer: Tensor, *, validate: bool = False) -> None:
    """Read blocks into `buffer [num_ids, table.bytes_per_block]` uint8, on the pools' device or pinned host memory.

    Raises ValueError naming the argument.
    """
    _check_buffer(table, block_ids, buffer)
    if validate:
        _check_ids("block_ids", block_ids, table, unique=False)
    plan(table, block_ids, None, buffer).run()


def scatter_blocks(table: PoolTable, block_ids: Tensor, buffer: Tensor, *, validate: bool = False) -> None:
    """Write the rows of `buffer` into blocks: the inverse of `gather_blocks`, with its checks; no id twice."""
    _check_buffer(table, block_ids, buffer)
    if validate:
        _check_ids("block_ids", block_ids, table, unique=True)
    plan(table, None, block_ids, buffer).run()


def _check_buffer(table: PoolTable, block_ids: Tensor, buffer: Tensor) -> None:
    device = table.addresses.device
    check_vector("block_ids", block_ids, None, device)
    place = device if not buffer.is_cpu or device.type == "cpu" else buffer.device
    check_tensor("buffer", buffer, (block_ids.shape[0], table.bytes_per_block), (torch.uint8,), place)
    require(buffer.is_contiguous(), "buffer", f"must be contiguous, got strides {buffer.stride()}")
    require(buffer.data_ptr() % 16 == 0, "buffer", "must be aligned to 16 bytes")
    require(place == device or buffer.is_pinned(), "buffer", "must be pinned to be reached from the GPU")


def _check_ids(name: str, ids: Tensor, table: PoolTable, unique: bool) -> None:
    values = sorted(ids.tolist())
    inside = not values or (values[0] >= 0 and values[-1] < table.num_blocks)
    require(inside, name, f"must lie in 0..{table.num_blocks - 1}")
    require(not unique or all(a != b for a, b in pairwise(values)), name, "names a block twice")
