"""The workspace of partial results: what one part of a row's keys came to, not yet normalised.

    acc = Σ 2^(s − row_max) · v      row_max = max s      row_sum = Σ 2^(s − row_max)          s in base 2, see `tile`

A part that saw no key of a row says so by a row_max of −inf; its row_sum and acc are then never read.

Knows nothing of which keys a part covers.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import Facts
from kernels.attention.problem import Problem


class Parts(NamedTuple):
    """fp32: `acc [num_parts, num_tokens, num_heads, head_dim_v]`; `row_max` and `row_sum` lack the last dimension."""

    acc: Tensor
    row_max: Tensor
    row_sum: Tensor

    def facts(self) -> Facts:
        """As kernels that fill parts ask for them."""
        num_tokens, num_heads = self.row_max.shape[1:]
        return {
            "acc_ptr": self.acc, "max_ptr": self.row_max, "sum_ptr": self.row_sum,
            "num_tokens": num_tokens, "num_heads": num_heads,
        }  # fmt: skip

    def since(self, first: int) -> Parts:
        """The parts from `first` on, in place."""
        return Parts(self.acc[first:], self.row_max[first:], self.row_sum[first:])


def new_parts(problem: Problem, num_parts: int) -> Parts:
    """Uninitialised."""
    num_tokens, num_heads = problem.q.shape[:2]
    rows = (num_parts, num_tokens, num_heads)
    new, f32 = problem.q.new_empty, torch.float32
    return Parts(new(*rows, problem.v_cache.shape[3], dtype=f32), new(rows, dtype=f32), new(rows, dtype=f32))


@triton.jit
def store_part(
    acc, row_max, row_sum,
    acc_ptr,  # [num_parts, num_tokens, num_heads, HEAD_DIM_V]
    max_ptr,  # [num_parts, num_tokens, num_heads]
    sum_ptr,  # [num_parts, num_tokens, num_heads]
    part, token, head, mask_row, num_tokens, num_heads,
    HEAD_DIM_V: tl.constexpr,
    TILE_DV: tl.constexpr,
):  # fmt: skip
    """Write one part of a tile's rows; the accumulator only where the row saw a key."""
    offs_dv = tl.arange(0, TILE_DV)
    offs_row = (tl.cast(part, tl.int64) * num_tokens + token) * num_heads + head
    tl.store(max_ptr + offs_row, row_max, mask=mask_row)
    tl.store(sum_ptr + offs_row, row_sum, mask=mask_row)
    seen = mask_row & (row_sum > 0.0)
    acc_ptrs = acc_ptr + offs_row[:, None] * HEAD_DIM_V + offs_dv[None, :]
    tl.store(acc_ptrs, acc, mask=seen[:, None] & (offs_dv < HEAD_DIM_V)[None, :])
