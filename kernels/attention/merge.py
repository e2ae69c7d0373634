"""Partial results over disjoint keys as one: the reduction behind `split_kv` and `cascade`, and useful alone.

Parts fold in order, 0 to num_parts − 1, one row (a query token and head) independent of the next. A part whose
maximum is −inf saw no key for that row; its sum and accumulator are not read, so they may hold anything.

Knows nothing of which keys a part covered, nor whether two parts overlap.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build
from kernels.attention.parts import Parts
from kernels.attention.tile import LOG2E, add_sinks, finish, fold
from kernels.checks import FLOATS, check_tensor, check_unit_stride, require
from kernels.launch import FP_FUSION, Launch, cdiv, next_power_of_2, refuse_bf16_interpreted

TILE_ROWS = 4  # small: at decode there are few rows and the parts are walked one after the other


@triton.jit
def merge_kernel(
    acc_ptr,  # [num_parts, num_rows, HEAD_DIM_V]
    max_ptr,  # [num_parts, num_rows]: base-2 maximum, or natural-log LSE where sum_ptr is None
    sum_ptr,  # [num_parts, num_rows], or None: acc is normalised, which is a maximum of the LSE and a sum of 1
    sinks_ptr,  # None, or [num_heads]
    out_ptr,  # [num_rows, HEAD_DIM_V]
    lse_ptr,  # None, or [num_rows]
    num_parts,
    num_rows,
    num_heads,
    HEAD_DIM_V: tl.constexpr,
    TILE_ROWS: tl.constexpr,  # power of two
    TILE_DV: tl.constexpr,  # power of two
):
    """Grid: (row tiles,). A row is token × num_heads + head."""
    row = tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    offs_dv = tl.arange(0, TILE_DV)
    mask_row = row < num_rows
    acc = tl.zeros([TILE_ROWS, TILE_DV], tl.float32)
    row_max = tl.full([TILE_ROWS], float("-inf"), tl.float32)
    row_sum = tl.zeros([TILE_ROWS], tl.float32)
    for part in tl.range(0, num_parts, loop_unroll_factor=4):
        offs_row = tl.cast(part, tl.int64) * num_rows + row
        max_next = tl.load(max_ptr + offs_row, mask=mask_row, other=float("-inf"))
        seen = max_next > float("-inf")
        if sum_ptr is None:
            max_next = max_next * LOG2E
            sum_next = seen.to(tl.float32)
        else:
            sum_next = tl.load(sum_ptr + offs_row, mask=seen, other=0.0)
        # [TILE_ROWS, TILE_DV]
        acc_ptrs = acc_ptr + offs_row[:, None] * HEAD_DIM_V + offs_dv[None, :]
        acc_next = tl.load(acc_ptrs, mask=seen[:, None] & (offs_dv < HEAD_DIM_V)[None, :], other=0.0).to(tl.float32)
        acc, row_max, row_sum = fold(acc, row_max, row_sum, acc_next, max_next, sum_next)
    if sinks_ptr is not None:
        sinks = tl.load(sinks_ptr + row % num_heads, mask=mask_row, other=0.0).to(tl.float32)
        acc, row_max, row_sum = add_sinks(acc, row_max, row_sum, sinks)
    out, lse = finish(acc, row_max, row_sum)
    out_ptrs = out_ptr + row.to(tl.int64)[:, None] * HEAD_DIM_V + offs_dv[None, :]
    mask_out = mask_row[:, None] & (offs_dv < HEAD_DIM_V)[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_out)
    if lse_ptr is not None:
        tl.store(lse_ptr + row, lse, mask=mask_row)


def plan(
    parts: Parts | tuple[Tensor, Tensor, None],
    sinks: Tensor | None,
    out: Tensor,
    lse: Tensor | None,
    fp_fusion: bool = FP_FUSION,
) -> Launch:
    """The launch that folds contiguous parts into `out [num_tokens, num_heads, head_dim_v]` and `lse`.

    `parts` is a workspace, or normalised `outs`, their natural-log `lses`, and None for the sums.
    """
    acc, row_max, row_sum = parts
    num_parts, num_tokens, num_heads, head_dim_v = acc.shape
    num_rows = num_tokens * num_heads
    return build(
        merge_kernel,
        (cdiv(num_rows, TILE_ROWS),),
        {"acc_ptr": acc, "max_ptr": row_max, "sum_ptr": row_sum, "sinks_ptr": sinks, "out_ptr": out, "lse_ptr": lse},
        fp_fusion=fp_fusion,
        num_parts=num_parts,
        num_rows=num_rows,
        num_heads=num_heads,
        HEAD_DIM_V=head_dim_v,
        TILE_ROWS=TILE_ROWS,
        TILE_DV=next_power_of_2(head_dim_v),
    )


def merge(
    outs: Tensor, lses: Tensor, *, sinks: Tensor | None = None, return_lse: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Merge normalised partial results by their log-sum-exp: out = Σ_n exp(lse_n − lse) out_n.

    `outs [num_parts, num_tokens, num_heads, head_dim]` contiguous; `lses [num_parts, num_tokens, num_heads]` fp32,
    natural log, −inf where a part saw no key; `sinks [num_heads]` join the denominator once. Returns out in the dtype
    of `outs` and, if asked, its LSE. Raises ValueError naming the argument.
    """
    check_tensor("outs", outs, (None, None, None, None), FLOATS, outs.device)
    refuse_bf16_interpreted(merge_kernel, "outs", outs)
    require(outs.is_contiguous(), "outs", f"must be contiguous, got strides {outs.stride()}")
    check_tensor("lses", lses, tuple(outs.shape[:3]), (torch.float32,), outs.device)
    require(lses.is_contiguous(), "lses", f"must be contiguous, got strides {lses.stride()}")
    if sinks is not None:
        check_tensor("sinks", sinks, (outs.shape[2],), FLOATS, outs.device)
        check_unit_stride("sinks", sinks)
    out = outs.new_empty(outs.shape[1:])
    lse = lses.new_empty(lses.shape[1:]) if return_lse else None
    plan((outs, lses, None), sinks, out, lse).run()
    return out, lse
