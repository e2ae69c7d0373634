"""Attention whose keys are split over programs, then reduced: for few queries over long contexts.

    fast        part s of a request covers an equal share of its keys, cut at multiples of TILE_KV
    invariant   a part is a segment of fixed length at absolute positions; a split is a run of segments, and writes
                each of them on its own, so the parts and their order do not depend on how many splits there are

How many splits a call gets is `splits`' business; one split is `varlen`, with no reduction.

Knows nothing of why there are so many.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from typing import Unpack

import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build
from kernels.attention import merge, varlen
from kernels.attention.parts import Parts, new_parts, store_part
from kernels.attention.problem import Options, Problem
from kernels.attention.rows import load_per_head, load_queries, locate, query_grid, rows_of_request
from kernels.attention.splits import choose_num_splits, num_processors
from kernels.attention.tile import attend, keys_of_head
from kernels.attention.varlen import SEGMENT, num_segments
from kernels.checks import require
from kernels.launch import FP_FUSION, Launch
from kernels.tuning import FALLBACK, AttentionConfig


@triton.jit
def split_kernel(
    q_ptr,  # [num_tokens, num_heads, HEAD_DIM_K]
    k_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_K]
    v_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_V]
    k_scale_ptr,  # None, [1], or [num_blocks, KV_BLOCK, num_kv_heads]
    v_scale_ptr,  # as k_scale_ptr
    alibi_ptr,  # None, or [num_heads]
    block_table_ptr,  # [num_requests, max_blocks]
    query_start_loc_ptr,  # [num_requests + 1]
    seq_lens_ptr,  # [num_requests]
    kv_starts_ptr,  # None, or [num_requests]
    acc_ptr,  # [num_parts, num_tokens, num_heads, HEAD_DIM_V]
    max_ptr,  # [num_parts, num_tokens, num_heads]
    sum_ptr,  # [num_parts, num_tokens, num_heads]
    num_requests,
    num_blocks,
    num_tokens,
    num_heads,
    num_splits,
    num_parts,  # num_splits, or all the segments there may be
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
    CAUSAL: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
    ONE_QUERY: tl.constexpr,
    SEGMENT: tl.constexpr,  # 0: one part per split; otherwise a multiple of TILE_KV
    GROUP: tl.constexpr,
    HEAD_DIM_K: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    KV_BLOCK: tl.constexpr,
    TILE_Q: tl.constexpr,  # power of two, >= GROUP
    TILE_KV: tl.constexpr,  # power of two
    TILE_DK: tl.constexpr,  # power of two
    TILE_DV: tl.constexpr,  # power of two
):
    """Grid: (query tiles, num_kv_heads, num_splits)."""
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
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
        aligned = kv_lo // TILE_KV * TILE_KV
        split_len = tl.cdiv(tl.cdiv(tl.maximum(kv_hi - aligned, 0), num_splits), TILE_KV) * TILE_KV
        begin = aligned + split * split_len
        acc, row_max, row_sum = attend(
            q, q_pos, slopes, tl.maximum(kv_lo, begin), tl.minimum(kv_hi, begin + split_len),
            table_ptr, keys, scale, softcap, window,
            CAUSAL, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
        )  # fmt: skip
        store_part(
            acc, row_max, row_sum, acc_ptr, max_ptr, sum_ptr,
            split, token, head, mask_row, num_tokens, num_heads, HEAD_DIM_V, TILE_DV,
        )  # fmt: skip
    else:
        per_split = tl.cdiv(num_parts, num_splits)
        for part in range(split * per_split, tl.minimum(num_parts, (split + 1) * per_split)):
            begin = part * SEGMENT
            acc, row_max, row_sum = attend(
                q, q_pos, slopes, tl.maximum(kv_lo, begin), tl.minimum(kv_hi, begin + SEGMENT),
                table_ptr, keys, scale, softcap, window,
                CAUSAL, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
            )  # fmt: skip
            store_part(
                acc, row_max, row_sum, acc_ptr, max_ptr, sum_ptr,
                part, token, head, mask_row, num_tokens, num_heads, HEAD_DIM_V, TILE_DV,
            )  # fmt: skip


def plan(problem: Problem, parts: Parts, config: AttentionConfig, num_splits: int, invariant: bool) -> Launch:
    """The launch that fills the first `num_splits` parts (all segments, if invariant) of the workspace."""
    tile_q, tiles, one_query = query_grid(problem, config)
    return build(
        split_kernel,
        (tiles, problem.num_kv_heads, num_splits),
        problem.facts() | parts.facts(),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        fp_fusion=FP_FUSION and not invariant,
        num_splits=num_splits,
        num_parts=num_segments(problem.max_seq_len) if invariant else num_splits,
        ONE_QUERY=one_query,
        SEGMENT=SEGMENT if invariant else 0,
        TILE_Q=tile_q,
        TILE_KV=min(config.tile_kv, SEGMENT),
    )


def attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, query_start_loc: Tensor, seq_lens: Tensor,
    max_query_len: int, max_seq_len: int, *, return_lse: bool = False, invariant: bool = False,
    config: AttentionConfig = FALLBACK, validate: bool = False, num_splits: int | None = None,
    **options: Unpack[Options],
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """`kernels.attention.varlen.attention` with its keys split over `num_splits` programs (None: chosen from the work).

    Same arguments, results and errors. Good for every call, long prefill included: where splitting gains nothing it
    runs `varlen`. The workspace is `num_splits × num_tokens × num_heads × (head_dim_v + 2)` fp32 (in invariant mode,
    one part per segment of `max_seq_len`).
    """
    problem = Problem(
        q, k_cache, v_cache, block_table, query_start_loc, seq_lens, max_query_len, max_seq_len, **options
    )
    problem.check(split_kernel, validate)
    require(num_splits is None or num_splits >= 1, "num_splits", f"must be at least 1, got {num_splits}")
    if num_splits is None:
        tiles, window = query_grid(problem, config)[1], problem.window
        visible = max_seq_len if window is None else min(max_seq_len, window + max_query_len)
        num_splits = choose_num_splits(tiles * problem.num_kv_heads, visible, config.tile_kv, num_processors(q))
    out, lse = problem.new_outputs(return_lse)
    if num_splits == 1:
        varlen.plan(problem, out, lse, config, invariant).run()
        return out, lse
    parts = new_parts(problem, num_segments(max_seq_len) if invariant else num_splits)
    plan(problem, parts, config, num_splits, invariant).run()
    merge.plan(parts, problem.sinks, out, lse, FP_FUSION and not invariant).run()
    return out, lse
