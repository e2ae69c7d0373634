"""The Triton kernels of the package `conch-triton-kernels`, where it is installed. Knows nothing of prefill chunks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from experiments.ablation.baseline.base import Baseline, UnsupportedError, finite_pool, need_plain_cache
from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs
from experiments.ablation.variant.base import Call


class Conch(Baseline):
    """Its paged decode for one query token, its varlen kernel for more."""

    name = "conch"
    op = "attention"

    def bind(self, inputs: AttentionInputs, point: Point) -> Call:
        need_plain_cache(point)
        try:
            from conch.ops.attention.paged_attention import paged_attention
            from conch.ops.attention.varlen_attention import varlen_attention
        except ImportError:
            raise UnsupportedError("not installed") from None
        k_cache, v_cache = finite_pool(inputs.pool, point)
        table = inputs.pool.block_table
        if point.query_len == 1:
            return lambda: paged_attention(inputs.q, k_cache, v_cache, table, inputs.seq_lens)
        return lambda: varlen_attention(
            inputs.q, k_cache, v_cache, inputs.query_start_loc, inputs.max_query_len,
            inputs.seq_lens, inputs.max_seq_len, table, causal=True,
        )  # fmt: skip

    def results(self, inputs: AttentionInputs, returned: Tensor) -> Sequence[Tensor]:
        return [returned]
