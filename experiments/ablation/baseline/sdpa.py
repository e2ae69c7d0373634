"""torch's scaled_dot_product_attention over K and V laid out densely: what paging competes with.

The dense copy is made before anything is timed. With query_len < context the queries are the last tokens, which
torch calls a lower-right causal mask.

Knows nothing of blocks once the copy is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from experiments.ablation.baseline.base import Baseline, need_plain_cache
from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs
from experiments.ablation.variant.base import Call

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


class Sdpa(Baseline):
    """`backend` None leaves the choice to torch; a named one is forced, with heads repeated where it wants them so."""

    op = "attention"
    trusted = True

    def __init__(self, backend: str | None = None) -> None:
        """Raises ValueError for an unknown backend."""
        if backend is not None and backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, or null, got {backend!r}")
        self.name = f"sdpa_{backend}" if backend else "sdpa"
        self._backend = backend

    def bind(self, inputs: AttentionInputs, point: Point) -> Call:
        need_plain_cache(point)
        q = inputs.q.view(point.batch, point.query_len, point.num_heads, point.head_dim).transpose(1, 2).contiguous()
        k, v = (dense(cache, inputs.pool.block_table, point) for cache in (inputs.pool.k_cache, inputs.pool.v_cache))
        options: dict[str, Any] = {"enable_gqa": point.gqa_ratio > 1}
        if point.query_len == point.context:
            options["is_causal"] = True
        elif point.query_len > 1:
            options["attn_mask"] = causal_lower_right(point.query_len, point.context)
        if self._backend is None:
            return lambda: F.scaled_dot_product_attention(q, k, v, **options)
        backend = BACKENDS[self._backend]

        def call(k: Tensor = k, v: Tensor = v, options: dict[str, Any] = options) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, **options)

        if point.gqa_ratio == 1:
            return call
        try:
            call()
        except RuntimeError:  # this backend has no grouped heads
            k, v = (x.repeat_interleave(point.gqa_ratio, dim=1) for x in (k, v))
            options = {**options, "enable_gqa": False}
        return lambda: call(k, v, options)

    def results(self, inputs: AttentionInputs, returned: Tensor) -> Sequence[Tensor]:
        return [returned.transpose(1, 2).flatten(0, 1)]


def dense(cache: Tensor, table: Tensor, point: Point) -> Tensor:
    """Blocks of every request end to end: `[batch, num_kv_heads, context, head_dim]`, contiguous."""
    rows = cache[table.long()].flatten(1, 2)[:, : point.context]
    return torch.empty(
        point.batch, point.num_kv_heads, point.context, point.head_dim, dtype=cache.dtype, device=cache.device
    ).copy_(rows.transpose(1, 2))
