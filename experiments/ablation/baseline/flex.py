"""torch's FlexAttention straight over the paged pool, through a block mask that holds the block tables.

The pool is one long sequence of slots that all requests look into. Which blocks a tile of queries visits is the block
table; the mask function turns a slot back into (owner, position) for the blocks that are only partly visible.

Knows nothing of shared blocks: a slot has one owner here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from experiments.ablation.baseline.base import Baseline, UnsupportedError, finite_pool, need_plain_cache
from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs
from experiments.ablation.variant.base import Call

TILE_Q = 128


class Flex(Baseline):
    """`compiled`: through torch.compile, which is the only way it is fast (and takes seconds per shape)."""

    name = "flex"
    op = "attention"

    def __init__(self, compiled: bool = True) -> None:
        self._compiled = compiled

    def bind(self, inputs: AttentionInputs, point: Point) -> Call:
        need_plain_cache(point)
        if point.block_size < 16 or point.block_size & (point.block_size - 1):
            raise UnsupportedError("its tiles need a block size that is a power of two of at least 16")
        if point.shared_prefix:
            raise UnsupportedError("a slot has one owner")
        q = inputs.q.view(point.batch, point.query_len, point.num_heads, point.head_dim).transpose(1, 2)
        caches = finite_pool(inputs.pool, point)
        if not self._compiled:  # the eager form multiplies all slots, those of nobody included
            caches = (caches[0].nan_to_num(), caches[1].nan_to_num())
        # [1, num_kv_heads, slots, head_dim], the pool itself
        k, v = (cache.flatten(0, 1).transpose(0, 1)[None] for cache in caches)
        mask = paged_mask(inputs.pool.block_table, point, inputs.pool.k_cache.shape[0])
        if self._compiled:
            torch.compiler.reset()  # it would give up compiling after a few shapes, and run densely
        flex = torch.compile(flex_attention, dynamic=False) if self._compiled else flex_attention
        options: Any = {"BLOCK_N": min(64, point.block_size)} if self._compiled else None
        gqa = point.gqa_ratio > 1
        return lambda: flex(q, k, v, block_mask=mask, enable_gqa=gqa, kernel_options=options)

    def results(self, inputs: AttentionInputs, returned: Tensor) -> Sequence[Tensor]:
        return [returned.transpose(1, 2).flatten(0, 1)]


def paged_mask(table: Tensor, point: Point, num_blocks: int) -> BlockMask:
    """Causal attention of each request's last `query_len` tokens over its own blocks, as a mask over all slots."""
    size, width, device = point.block_size, point.blocks_per_request, table.device
    past = point.context - point.query_len
    owner = torch.full((num_blocks,), -1, device=device)
    place = torch.zeros(num_blocks, dtype=torch.long, device=device)
    columns = torch.arange(width, device=device)
    owner[table.long()] = torch.arange(point.batch, device=device)[:, None].expand(point.batch, width)
    place[table.long()] = columns.expand(point.batch, width)

    def visible(batch: Tensor, head: Tensor, query: Tensor, slot: Tensor) -> Tensor:
        block = slot // size
        position = place[block] * size + slot % size
        return (owner[block] == batch) & (position <= query + past)

    first = torch.arange(0, point.query_len, TILE_Q, device=device)
    last = (first + TILE_Q - 1).clamp_max(point.query_len - 1)
    whole = (past + first + 1) // size  # blocks that even the tile's first query sees to their end
    seen = (past + last) // size + 1
    rows = first.shape[0]
    # a column per block of the pool, because the mask has to be as wide as the keys; only the first counts are read
    ids = torch.zeros(point.batch, 1, rows, num_blocks, dtype=torch.int32, device=device)
    ids[..., :width] = table[:, None, None, :]
    shifted = ids.gather(
        3,
        (torch.arange(num_blocks, device=device) + whole[:, None])
        .clamp_max(num_blocks - 1)
        .expand(point.batch, 1, rows, num_blocks),
    )

    def counts(n: Tensor) -> Tensor:
        return n.to(torch.int32).expand(point.batch, 1, rows).contiguous()

    return BlockMask.from_kv_blocks(
        counts(seen - whole), shifted, counts(whole), ids, BLOCK_SIZE=(TILE_Q, size),
        mask_mod=visible, seq_lengths=(point.query_len, num_blocks * size), compute_q_blocks=False,
    )  # fmt: skip
