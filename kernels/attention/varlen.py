"""One kernel for prefill, chunked prefill over a cached prefix, and decode.

A program takes a tile of query rows of one KV head (`rows`) and walks that request's keys once (`tile`).

**Invariant mode.** Keys are cut into segments of `SEGMENT` tokens at absolute positions; each segment starts from an
empty softmax and segments fold in order. Tile sizes are fixed, contraction of a·b+c is off. What a query token gets
then depends on its own keys alone: not on the batch, the chunk it came in, or how much of its prompt was cached; and
`split_kv` in the same mode folds the same segments in the same order. On a GPU this rests on one assumption: that a
matrix instruction computes each row of its result independently of the other rows.

Knows nothing of how many processors there are: a long context with few queries is `split_kv`'s work.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from typing import Unpack

import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build, strided
from kernels.attention.problem import Options, Problem
from kernels.attention.rows import load_per_head, load_queries, locate, query_grid, rows_of_request
from kernels.attention.tile import add_sinks, attend, finish, fold, keys_of_head
from kernels.launch import FP_FUSION, Launch, cdiv
from kernels.tuning import FALLBACK, AttentionConfig

SEGMENT = 512  # tokens per segment in invariant mode: a multiple of every TILE_KV


@triton.jit
def varlen_kernel(
    q_ptr,  # [num_tokens, num_heads, HEAD_DIM_K]
    k_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_K]
    v_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_V]
    k_scale_ptr,  # None, [1], or [num_blocks, KV_BLOCK, num_kv_heads]
    v_scale_ptr,  # as k_scale_ptr
    alibi_ptr,  # None, or [num_heads]
    sinks_ptr,  # None, or [num_heads]
    block_table_ptr,  # [num_requests, max_blocks]
    query_start_loc_ptr,  # [num_requests + 1]
    seq_lens_ptr,  # [num_requests]
    kv_starts_ptr,  # None, or [num_requests]
    out_ptr,  # [num_tokens, num_heads, HEAD_DIM_V]
    lse_ptr,  # None, or [num_tokens, num_heads]
    num_requests,
    num_blocks,
    scale,
    softcap,  # None: off
    window,  # None: off
    stride_q_token,
    stride_q_head,
    stride_k_block,
    stride_k_slot,
    stride_k_head,
    stride_v_block,
    stride_v_slot,
    stride_v_head,
    stride_scale_block,
    stride_scale_slot,
    stride_scale_head,
    stride_block_table_request,
    stride_out_token,
    stride_out_head,
    stride_lse_token,
    CAUSAL: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
    ONE_QUERY: tl.constexpr,
    SEGMENT: tl.constexpr,  # 0: one pass; otherwise a multiple of TILE_KV
    GROUP: tl.constexpr,
    HEAD_DIM_K: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    KV_BLOCK: tl.constexpr,
    TILE_Q: tl.constexpr,  # power of two, >= GROUP
    TILE_KV: tl.constexpr,  # power of two
    TILE_DK: tl.constexpr,  # power of two
    TILE_DV: tl.constexpr,  # power of two
):
    """Grid: (query tiles, num_kv_heads)."""
    kv_head = tl.program_id(1)
    request, first, query_start, query_len = locate(
        query_start_loc_ptr, num_requests, tl.program_id(0), TILE_Q // GROUP, ONE_QUERY
    )
    if first >= query_len:
        return
    token, head, mask_row, q_pos, kv_lo, kv_hi = rows_of_request(
        seq_lens_ptr, kv_starts_ptr, request, first, query_start, query_len, kv_head, window, CAUSAL, GROUP, TILE_Q
    )
    q = load_queries(q_ptr, token, head, mask_row, stride_q_token, stride_q_head, HEAD_DIM_K, TILE_DK)
    slopes = load_per_head(alibi_ptr, head, mask_row)
    table_ptr = block_table_ptr + request.to(tl.int64) * stride_block_table_request
    keys = keys_of_head(
        kv_head, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, num_blocks,
        stride_k_block, stride_k_slot, stride_k_head, stride_v_block, stride_v_slot, stride_v_head,
        stride_scale_block, stride_scale_slot, stride_scale_head, SCALE_PER_TOKEN,
    )  # fmt: skip

    if SEGMENT == 0:
        acc, row_max, row_sum = attend(
            q, q_pos, slopes, kv_lo, kv_hi, table_ptr, keys, scale, softcap, window,
            CAUSAL, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
        )  # fmt: skip
    else:
        acc = tl.zeros([TILE_Q, TILE_DV], tl.float32)
        row_max = tl.full([TILE_Q], float("-inf"), tl.float32)
        row_sum = tl.zeros([TILE_Q], tl.float32)
        for segment in range(kv_lo // SEGMENT * SEGMENT, kv_hi, SEGMENT):
            acc_next, max_next, sum_next = attend(
                q, q_pos, slopes, tl.maximum(kv_lo, segment), tl.minimum(kv_hi, segment + SEGMENT),
                table_ptr, keys, scale, softcap, window,
                CAUSAL, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
            )  # fmt: skip
            acc, row_max, row_sum = fold(acc, row_max, row_sum, acc_next, max_next, sum_next)

    if sinks_ptr is not None:
        acc, row_max, row_sum = add_sinks(acc, row_max, row_sum, load_per_head(sinks_ptr, head, mask_row))
    out, lse = finish(acc, row_max, row_sum)
    # [TILE_Q, TILE_DV]
    offs_dv = tl.arange(0, TILE_DV)
    out_ptrs = out_ptr + (token.to(tl.int64) * stride_out_token + head * stride_out_head)[:, None] + offs_dv[None, :]
    mask_out = mask_row[:, None] & (offs_dv < HEAD_DIM_V)[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_out)
    if lse_ptr is not None:
        tl.store(lse_ptr + token.to(tl.int64) * stride_lse_token + head, lse, mask=mask_row)


def plan(problem: Problem, out: Tensor, lse: Tensor | None, config: AttentionConfig, invariant: bool) -> Launch:
    """The launch that computes `problem` into `out` (and `lse`). `problem.check` has passed."""
    tile_q, tiles, one_query = query_grid(problem, config)
    return build(
        varlen_kernel,
        (tiles, problem.num_kv_heads),
        problem.facts() | strided("out", out, "token", "head") | strided("lse", lse, "token"),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        fp_fusion=FP_FUSION and not invariant,
        ONE_QUERY=one_query,
        SEGMENT=SEGMENT if invariant else 0,
        TILE_Q=tile_q,
        TILE_KV=min(config.tile_kv, SEGMENT),
    )


def attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, query_start_loc: Tensor, seq_lens: Tensor,
    max_query_len: int, max_seq_len: int, *, return_lse: bool = False, invariant: bool = False,
    config: AttentionConfig = FALLBACK, validate: bool = False, **options: Unpack[Options],
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Attention of each request's last tokens over its cached keys and values (theirs included, written before).

    Shapes: `q [num_tokens, num_heads, head_dim_k]`; `k_cache [num_blocks, block_size, num_kv_heads, head_dim_k]` and
    `v_cache` (own head dim) with any strides but the last; `block_table [num_requests, max_blocks]`,
    `query_start_loc [num_requests + 1]` and `seq_lens [num_requests]` int32 or int64. `max_query_len` and
    `max_seq_len` bound the lengths in the batch, in tokens.

    `options`, free when off, are those of `kernels.attention.problem.Options`: `scale`, `causal`, `window`, `softcap`,
    `alibi_slopes`, `sinks`, `k_scale` and `v_scale`, `kv_starts`. `invariant`, see the module docstring; for it to
    hold, `config` must be the same for every call.

    Returns out `[num_tokens, num_heads, head_dim_v]` in q's dtype, zeros where a query sees no key, and (asked for)
    its natural log-sum-exp `[num_tokens, num_heads]` fp32, sinks counted, −inf where a query sees nothing.
    Raises ValueError naming the argument; `validate` also checks the metadata's ranges, synchronising with the GPU.
    """
    problem = Problem(
        q, k_cache, v_cache, block_table, query_start_loc, seq_lens, max_query_len, max_seq_len, **options
    )
    problem.check(varlen_kernel, validate)
    out, lse = problem.new_outputs(return_lse)
    plan(problem, out, lse, config, invariant).run()
    return out, lse


def num_segments(max_seq_len: int) -> int:
    """Segments of invariant mode that cover `max_seq_len` keys; at least one."""
    return max(1, cdiv(max_seq_len, SEGMENT))
