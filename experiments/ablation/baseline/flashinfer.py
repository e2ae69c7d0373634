"""FlashInfer's paged kernels, where it is installed; its plan is made once, as a serving step makes it.

Knows nothing of which of its backends runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.ablation.baseline.base import Baseline, UnsupportedError, finite_pool, need_plain_cache
from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs
from experiments.ablation.variant.base import Call

WORKSPACE = 256 << 20  # bytes


class FlashInfer(Baseline):
    """The decode wrapper for one query token, the prefill wrapper for more."""

    name = "flashinfer"
    op = "attention"

    def bind(self, inputs: AttentionInputs, point: Point) -> Call:
        need_plain_cache(point)
        try:
            import flashinfer
        except ImportError:
            raise UnsupportedError("not installed") from None
        pool, width = inputs.pool, point.blocks_per_request
        indptr = torch.arange(point.batch + 1, dtype=torch.int32, device=inputs.q.device) * width
        filled = point.context - (width - 1) * point.block_size
        last = torch.full((point.batch,), filled, dtype=torch.int32, device=inputs.q.device)
        workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=inputs.q.device)
        heads = (point.num_heads, point.num_kv_heads, point.head_dim, point.block_size)
        dtypes = {"q_data_type": inputs.q.dtype, "kv_data_type": pool.k_cache.dtype}
        indices = pool.block_table.flatten()
        if point.query_len == 1:
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD")
            wrapper.plan(indptr, indices, last, *heads, **dtypes)
        else:
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
            wrapper.plan(inputs.query_start_loc, indptr, indices, last, *heads, causal=True, **dtypes)
        caches = finite_pool(pool, point)
        return lambda: wrapper.run(inputs.q, caches)

    def results(self, inputs: AttentionInputs, returned: Tensor) -> Sequence[Tensor]:
        return [returned]
