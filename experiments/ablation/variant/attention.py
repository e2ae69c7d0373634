"""What all attention variants share: inputs, the plain reference, and the work there is.

    flops = 4 · heads · head_dim · (query, key) pairs that see each other      two products, multiply and add
    bytes = K and V of every distinct token, q and out

Knows nothing of how keys are split or shared out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs, attention_inputs
from experiments.ablation.variant.base import Variant, Work, attention_tiles
from kernels.attention import naive
from kernels.shipped import DTYPES, Shape
from kernels.tuning import AttentionConfig, Tuning, section_for


class Attention(Variant):
    """Causal attention over a paged cache: prefill, chunk or decode, by `query_len` and `context`."""

    op = "attention"

    def __init__(self, invariant: bool = False) -> None:
        """`invariant`: the mode whose results do not depend on batch, chunks or splits."""
        self.invariant = invariant

    def inputs(self, point: Point, device: torch.device, seed: int) -> AttentionInputs:
        return attention_inputs(point, device, seed)

    def reference(self, inputs: AttentionInputs) -> Sequence[Tensor]:
        inputs = inputs.to_cpu()
        return [naive.attention(*inputs.args(), k_scale=inputs.pool.k_scale, v_scale=inputs.pool.v_scale)[0]]

    def work(self, point: Point) -> Work:
        element, cached = DTYPES[point.dtype].itemsize, DTYPES[point.kv_dtype or point.dtype].itemsize
        asked, past = point.query_len, point.context - point.query_len
        pairs = point.batch * (asked * past + asked * (asked + 1) // 2)
        tokens = point.shared_prefix + point.batch * (point.context - point.shared_prefix)
        per_token = point.head_dim * cached + (4 if point.scales == "token" else 0)
        keys = 2 * tokens * point.num_kv_heads * per_token
        queries = 2 * point.num_tokens * point.num_heads * point.head_dim * element
        return Work(keys + queries, 4 * point.num_heads * point.head_dim * pairs)

    def tiles(self, point: Point, tuning: Tuning) -> AttentionConfig:
        """The tiles a call of this shape runs with."""
        section = section_for(point.query_len, point.gqa_ratio, self.invariant)
        return attention_tiles(section, point, tuning, DTYPES[point.dtype].itemsize)


def shape_of(point: Point) -> Shape:
    """The point in the words of `kernels.shipped`."""
    return Shape(
        batch=point.batch, query_len=point.query_len, seq_len=point.context, num_heads=point.num_heads,
        num_kv_heads=point.num_kv_heads, head_dim=point.head_dim, block_size=point.block_size,
        num_blocks=point.batch * point.blocks_per_request + 1, dtype=point.dtype, kv_dtype=point.kv_dtype,
        scales=point.scales,
    )  # fmt: skip


def scale_options(inputs: AttentionInputs) -> dict[str, Any]:
    """Scales of a quantised pool, as the kernels take them."""
    return {"k_scale": inputs.pool.k_scale, "v_scale": inputs.pool.v_scale}
