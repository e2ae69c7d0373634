"""Rotate Q and K, write K and V, in one pass. Knows nothing of how angles are made for long contexts: base 10,000."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.ablation.point import Point
from experiments.ablation.variant.attention import shape_of
from experiments.ablation.variant.base import Call, Work
from experiments.ablation.variant.write import Write, WriteInputs
from kernels.launch import Launch
from kernels.shipped import DTYPES, write_launch
from kernels.tuning import Tuning
from kernels.write import naive, rope_scatter


class RopeScatter(Write):
    """`kernels.write.rope_scatter`, whole heads turned."""

    op = "rope_write"

    def __init__(self, interleaved: bool = False) -> None:
        """`interleaved`: pairs (2i, 2i + 1) rather than (i, i + half)."""
        self.interleaved = interleaved

    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        return [write_launch("rope_scatter", shape_of(point), interleaved=self.interleaved)]

    def bind(self, inputs: WriteInputs, point: Point, tuning: Tuning) -> Call:
        i, pool = inputs, inputs.pool
        cos, sin = angles(inputs)
        return lambda: rope_scatter.rope_scatter(
            i.q, i.k, i.v, cos, sin, i.positions, pool.k_cache, pool.v_cache, i.slot_mapping,
            interleaved=self.interleaved,
        )  # fmt: skip

    def results(self, inputs: WriteInputs, returned: Any) -> Sequence[Tensor]:
        return [returned.float(), *inputs.written()]

    def reference(self, inputs: WriteInputs) -> Sequence[Tensor]:
        i = inputs.to_cpu()
        turned = naive.rope_scatter(
            i.q, i.k, i.v, *angles(i), i.positions, i.pool.k_cache, i.pool.v_cache, i.slot_mapping,
            interleaved=self.interleaved,
        )  # fmt: skip
        return [turned.float(), *i.written()]

    def work(self, point: Point) -> Work:
        queries = 2 * point.num_tokens * point.num_heads * point.head_dim * DTYPES[point.dtype].itemsize
        tables = 2 * point.query_len * (point.head_dim // 2) * 4
        return Work(super().work(point).bytes + queries + tables + 8 * point.num_tokens, 0)


def angles(inputs: WriteInputs) -> tuple[Tensor, Tensor]:
    """cos and sin `[max position + 1, head_dim / 2]` fp32."""
    half = inputs.k.shape[2] // 2
    frequency = 10000.0 ** (-torch.arange(half, device=inputs.k.device) / half)
    angle = torch.arange(int(inputs.positions.max()) + 1, device=inputs.k.device)[:, None] * frequency
    return angle.cos(), angle.sin()
