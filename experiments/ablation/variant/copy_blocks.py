"""Copy-on-write: `batch` blocks of every layer's K and V copied in one launch. Knows nothing of host memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.ablation.point import Point
from experiments.ablation.variant.attention import shape_of
from experiments.ablation.variant.base import Call, Variant, Work
from kernels.copy import blocks, naive
from kernels.launch import Launch
from kernels.shipped import DTYPES, copy_launch
from kernels.tuning import Tuning


@dataclass(frozen=True, slots=True)
class CopyInputs:
    """K and V of every layer `[2 · batch, block_size, num_kv_heads, head_dim]`, and which block goes over which."""

    pools: list[Tensor]
    src_ids: Tensor
    dst_ids: Tensor


class CopyBlocks(Variant):
    """`kernels.copy.blocks.copy_blocks`."""

    op = "copy"

    def __init__(self, num_layers: int = 32) -> None:
        """`num_layers`: each has two pools."""
        self.num_layers = num_layers

    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        return [copy_launch("copy", shape_of(point), num_layers=self.num_layers)]

    def inputs(self, point: Point, device: torch.device, seed: int) -> CopyInputs:
        generator = torch.Generator(device).manual_seed(seed)
        size = (2 * point.batch, point.block_size, point.num_kv_heads, point.head_dim)
        dtype = DTYPES[point.dtype]
        pools = [torch.randn(size, dtype=dtype, generator=generator, device=device) for _ in range(2 * self.num_layers)]
        ids = torch.arange(2 * point.batch, device=device)
        if point.placement == "strided":
            ids = ids.view(-1, 2).T.flatten()
        elif point.placement == "shuffled":
            ids = torch.randperm(2 * point.batch, generator=generator, device=device)
        src, dst = ids.to(torch.int32).view(2, -1)
        return CopyInputs(pools, src.contiguous(), dst.contiguous())

    def bind(self, inputs: CopyInputs, point: Point, tuning: Tuning) -> Call:
        table = blocks.pool_table(inputs.pools)  # built once per cache
        return lambda: blocks.copy_blocks(table, inputs.src_ids, inputs.dst_ids)

    def results(self, inputs: CopyInputs, returned: Any) -> Sequence[Tensor]:
        return inputs.pools

    def reference(self, inputs: CopyInputs) -> Sequence[Tensor]:
        pools = [pool.to("cpu", copy=True) for pool in inputs.pools]
        naive.copy_blocks(pools, inputs.src_ids.cpu(), inputs.dst_ids.cpu())
        return pools

    def work(self, point: Point) -> Work:
        per_block = point.block_size * point.num_kv_heads * point.head_dim * DTYPES[point.dtype].itemsize
        return Work(2 * 2 * self.num_layers * point.batch * per_block, 0)
