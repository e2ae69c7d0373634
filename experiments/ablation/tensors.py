"""A point as tensors: a pool, block tables by placement, queries; what nobody wrote holds NaN.

The pool has one block more than the requests need, which belongs to nobody. Random values are drawn on the device
itself, from a seed: a pool of many gigabytes takes milliseconds.

Knows nothing of what is done with them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.ablation.point import Point
from kernels.shipped import DTYPES

INT8_STEP = 1 / 32


@dataclass(frozen=True, slots=True)
class Pool:
    """K and V `[num_blocks, block_size, num_kv_heads, head_dim]`, scales, `block_table [batch, width]` int32."""

    k_cache: Tensor
    v_cache: Tensor
    k_scale: Tensor | None
    v_scale: Tensor | None
    block_table: Tensor


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """What an attention variant takes; lengths int32, on the device."""

    pool: Pool
    q: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    max_query_len: int
    max_seq_len: int

    def args(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, int, int]:
        """In the order of `kernels.attention`."""
        pool = self.pool
        return (
            self.q, pool.k_cache, pool.v_cache, pool.block_table,
            self.query_start_loc, self.seq_lens, self.max_query_len, self.max_seq_len,
        )  # fmt: skip

    def to_cpu(self) -> AttentionInputs:
        """A copy the plain reference can walk."""
        p = self.pool
        scales = [None if s is None else s.cpu() for s in (p.k_scale, p.v_scale)]
        pool = Pool(p.k_cache.cpu(), p.v_cache.cpu(), scales[0], scales[1], p.block_table.cpu())
        return AttentionInputs(
            pool, self.q.cpu(), self.query_start_loc.cpu(), self.seq_lens.cpu(), self.max_query_len, self.max_seq_len
        )


def table_of(point: Point, generator: torch.Generator, device: torch.device) -> Tensor:
    """Block ids by placement, `[batch, blocks per request]` int32; shared prefix blocks are those of request 0."""
    batch, width = point.batch, point.blocks_per_request
    count = batch * width
    ids = torch.arange(count, device=device)
    if point.placement == "strided":
        table = ids.view(width, batch).T
    elif point.placement == "shuffled":
        table = torch.randperm(count, generator=generator, device=device).view(batch, width)
    else:
        table = ids.view(batch, width)
    table = table.to(torch.int32).contiguous()
    shared = point.shared_prefix // point.block_size
    table[:, :shared] = table[0, :shared]
    return table


def pool_of(point: Point, generator: torch.Generator, device: torch.device) -> Pool:
    """Random K and V for every token of every request."""
    dtype = DTYPES[point.kv_dtype or point.dtype]
    table = table_of(point, generator, device)
    num_blocks = point.batch * point.blocks_per_request + 1
    size = (num_blocks, point.block_size, point.num_kv_heads, point.head_dim)
    filled = point.context - (point.blocks_per_request - 1) * point.block_size

    def cache() -> Tensor:
        if dtype == torch.int8:
            return torch.randint(-100, 101, size, dtype=dtype, generator=generator, device=device)
        drawn = torch.float16 if dtype.itemsize == 1 else dtype
        values = torch.randn(size, dtype=drawn, generator=generator, device=device)
        values[-1] = float("nan")
        values[table[:, -1].long(), filled:] = float("nan")
        return values.to(dtype)

    def scales() -> Tensor | None:
        if point.scales == "none":
            return None
        if point.scales == "tensor":
            return torch.full((1,), 0.5, device=device)
        return (torch.rand(size[:3], generator=generator, device=device) + 0.5) * INT8_STEP

    return Pool(cache(), cache(), scales(), scales(), table)


def attention_inputs(point: Point, device: torch.device, seed: int) -> AttentionInputs:
    """Fresh random inputs of an attention call."""
    generator = torch.Generator(device).manual_seed(seed)
    pool = pool_of(point, generator, device)
    size = (point.num_tokens, point.num_heads, point.head_dim)
    q = torch.randn(size, dtype=DTYPES[point.dtype], generator=generator, device=device)
    starts = torch.arange(point.batch + 1, dtype=torch.int32, device=device) * point.query_len
    lens = torch.full((point.batch,), point.context, dtype=torch.int32, device=device)
    return AttentionInputs(pool, q, starts, lens, point.query_len, point.context)
