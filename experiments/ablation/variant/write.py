"""What all write variants share: new tokens, their slots, and the work there is.

The new tokens are the last `query_len` of every request. Bytes: K and V read and written, and what a variant adds.

Knows nothing of rotation or quantising.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.ablation.point import Point
from experiments.ablation.tensors import Pool, pool_of
from experiments.ablation.variant.base import Variant, Work
from kernels.shipped import DTYPES


@dataclass(frozen=True, slots=True)
class WriteInputs:
    """`q`, `k`, `v [num_tokens, heads, head_dim]`; positions and slots `[num_tokens]` int64."""

    pool: Pool
    q: Tensor
    k: Tensor
    v: Tensor
    positions: Tensor
    slot_mapping: Tensor

    def written(self) -> list[Tensor]:
        """What lies in the tokens' slots now, K and V, dequantised: `[num_tokens, num_kv_heads, head_dim]` fp32."""
        found, pool = [], self.pool
        for cache, scale in ((pool.k_cache, pool.k_scale), (pool.v_cache, pool.v_scale)):
            # as bytes, because torch does not index every 8-bit type on every device
            raw = cache.view(torch.uint8) if cache.dtype.itemsize == 1 else cache
            rows = raw.flatten(0, 1)[self.slot_mapping].view(cache.dtype).float()
            if scale is not None:
                rows = rows * (scale if scale.dim() == 1 else scale.flatten(0, 1)[self.slot_mapping][..., None])
            found.append(rows)
        return found

    def to_cpu(self) -> WriteInputs:
        """A copy the plain reference can write into."""
        p = self.pool
        scales = [None if s is None else s.to("cpu", copy=True) for s in (p.k_scale, p.v_scale)]
        caches = [c.to("cpu", copy=True) for c in (p.k_cache, p.v_cache)]
        pool = Pool(caches[0], caches[1], scales[0], scales[1], p.block_table.cpu())
        return WriteInputs(
            pool, self.q.cpu(), self.k.cpu(), self.v.cpu(), self.positions.cpu(), self.slot_mapping.cpu()
        )


class Write(Variant):
    """New K and V into their slots."""

    op = "write"

    def inputs(self, point: Point, device: torch.device, seed: int) -> WriteInputs:
        generator = torch.Generator(device).manual_seed(seed)
        pool = pool_of(point, generator, device)
        dtype = DTYPES[point.dtype]

        def heads(count: int) -> Tensor:
            size = (point.num_tokens, count, point.head_dim)
            return torch.randn(size, dtype=dtype, generator=generator, device=device)

        position = torch.arange(point.context - point.query_len, point.context, device=device)
        block = pool.block_table[:, position // point.block_size].long()
        slots = block * point.block_size + position % point.block_size
        k, v, q = heads(point.num_kv_heads), heads(point.num_kv_heads), heads(point.num_heads)
        return WriteInputs(pool, q, k, v, position.repeat(point.batch), slots.flatten().contiguous())

    def results(self, inputs: WriteInputs, returned: Any) -> Sequence[Tensor]:
        return inputs.written()

    def work(self, point: Point) -> Work:
        elements = 2 * point.num_tokens * point.num_kv_heads * point.head_dim
        cached = DTYPES[point.kv_dtype or point.dtype].itemsize
        return Work(elements * (DTYPES[point.dtype].itemsize + cached) + 8 * point.num_tokens, 0)
