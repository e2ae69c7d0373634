"""Attention whose keys are split over programs, then reduced: for few queries over long contexts.

    fast        part s of a request covers an equal share of its keys, cut at multiples of TILE_KV
    invariant   a part is a segment of fixed length at absolute positions; a split is a run of segments, and writes
                each of them on its own, so the parts and their order do not depend on how many splits there are

**How many splits.** A call has `programs` = query tiles × KV heads; a GPU runs about `capacity` = 2 × processors at
once. With n splits a program walks ceil(tiles / n) key tiles, and costs START_TILES more to begin, end and be reduced:

    cost(n) = ceil(programs · n / capacity) · (ceil(tiles / n) + START_TILES)         n = 1, 2, 4 … and the n that
                                                                                      fills one wave exactly
The smallest cost wins, fewer splits on a tie. Few sequences get many splits, many get one, and a batch that would
leave half of its last wave idle gets a number in between. One split is `varlen`, with no reduction.

Knows nothing of clocks: START_TILES is a guess to be measured per GPU, not a measurement.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention import merge, varlen
from kernels.attention.problem import Problem
from kernels.attention.tile import attend, key_range, load_queries, locate
from kernels.attention.varlen import SEGMENT, num_segments, outputs, query_grid
from kernels.checks import require
from kernels.launch import FP_FUSION, Launch, cdiv
from kernels.tuning import FALLBACK, AttentionConfig

PROGRAMS_PER_PROCESSOR = 2
START_TILES = 2
MAX_SPLITS = 128


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
    stride_table_request,
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
    TOKENS: tl.constexpr = TILE_Q // GROUP
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    request, first = locate(query_start_loc_ptr, num_requests, tl.program_id(0), TOKENS, ONE_QUERY)
    query_start = tl.load(query_start_loc_ptr + request).to(tl.int32)
    query_len = tl.load(query_start_loc_ptr + request + 1).to(tl.int32) - query_start
    if first >= query_len:
        return
    seq_len = tl.load(seq_lens_ptr + request).to(tl.int32)
    kv_start = 0
    if kv_starts_ptr is not None:
        kv_start = tl.load(kv_starts_ptr + request).to(tl.int32)
    past = seq_len - query_len  # keys before the request's first query

    offs_q = tl.arange(0, TILE_Q)
    token = first + offs_q // GROUP
    head = kv_head * GROUP + offs_q % GROUP
    mask_row = (offs_q < TOKENS * GROUP) & (token < query_len)
    q_pos = past + token
    token = query_start + token
    q = load_queries(q_ptr, token, head, mask_row, stride_q_token, stride_q_head, HEAD_DIM_K, TILE_DK)
    slopes = None
    if alibi_ptr is not None:
        slopes = tl.load(alibi_ptr + head, mask=mask_row, other=0.0).to(tl.float32)
    last = tl.minimum(first + TOKENS, query_len) - 1
    kv_lo, kv_hi = key_range(past + first, past + last, kv_start, seq_len, window, CAUSAL)

    table_ptr = block_table_ptr + request.to(tl.int64) * stride_table_request
    k_ptr += kv_head.to(tl.int64) * stride_k_head
    v_ptr += kv_head.to(tl.int64) * stride_v_head
    if SCALE_PER_TOKEN:
        k_scale_ptr += kv_head.to(tl.int64) * stride_scale_head
        v_scale_ptr += kv_head.to(tl.int64) * stride_scale_head

    if SEGMENT == 0:
        aligned = kv_lo // TILE_KV * TILE_KV
        split_len = tl.cdiv(tl.cdiv(tl.maximum(kv_hi - aligned, 0), num_splits), TILE_KV) * TILE_KV
        begin = aligned + split * split_len
        acc, row_max, row_sum = attend(
            q, q_pos, slopes, tl.maximum(kv_lo, begin), tl.minimum(kv_hi, begin + split_len),
            table_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, num_blocks, scale, softcap, window,
            stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, stride_scale_block, stride_scale_slot,
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
                table_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, num_blocks, scale, softcap, window,
                stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, stride_scale_block, stride_scale_slot,
                CAUSAL, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
            )  # fmt: skip
            store_part(
                acc, row_max, row_sum, acc_ptr, max_ptr, sum_ptr,
                part, token, head, mask_row, num_tokens, num_heads, HEAD_DIM_V, TILE_DV,
            )  # fmt: skip


def num_processors(tensor: Tensor) -> int:
    """Streaming multiprocessors (or compute units) of the tensor's GPU; 1 on a CPU, where splits gain nothing."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1


def choose_num_splits(programs: int, max_seq_len: int, tile_kv: int, processors: int) -> int:
    """Splits for `programs` = query tiles × KV heads over at most `max_seq_len` keys: see the module docstring."""
    tiles = max(1, cdiv(max_seq_len, tile_kv))
    capacity = PROGRAMS_PER_PROCESSOR * processors
    most = min(tiles, MAX_SPLITS)
    candidates = (
        {1, most} | {2**i for i in range(most.bit_length())} | {max(1, min(most, capacity // max(programs, 1)))}
    )

    def cost(n: int) -> tuple[int, int]:
        return cdiv(programs * n, capacity) * (cdiv(tiles, n) + (START_TILES if n > 1 else 0)), n

    return min(candidates, key=cost)


def partials(problem: Problem, num_parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Uninitialised fp32 workspace: acc, row_max and row_sum, with `num_parts` in front."""
    num_tokens, num_heads = problem.q.shape[:2]
    rows = (num_parts, num_tokens, num_heads)
    new = problem.q.new_empty
    f32 = torch.float32
    return new(*rows, problem.v_cache.shape[3], dtype=f32), new(rows, dtype=f32), new(rows, dtype=f32)


def plan(
    problem: Problem,
    acc: Tensor,
    row_max: Tensor,
    row_sum: Tensor,
    config: AttentionConfig,
    num_splits: int,
    invariant: bool,
) -> Launch:
    """The launch that fills the first `num_splits` parts (all segments, if invariant) of the workspace."""
    tile_q, tiles, one_query = query_grid(problem, config)
    args = problem.kernel_args() | problem.request_args()
    args |= {
        "acc_ptr": acc,
        "max_ptr": row_max,
        "sum_ptr": row_sum,
        "num_tokens": problem.q.shape[0],
        "num_heads": problem.q.shape[1],
        "num_splits": num_splits,
        "num_parts": num_segments(problem.max_seq_len) if invariant else num_splits,
        "ONE_QUERY": one_query,
        "SEGMENT": SEGMENT if invariant else 0,
        "TILE_Q": tile_q,
        "TILE_KV": min(config.tile_kv, SEGMENT),
    }
    grid = (tiles, problem.num_kv_heads, num_splits)
    return Launch(split_kernel, grid, args, config.num_warps, config.num_stages, FP_FUSION and not invariant)


def attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    max_query_len: int,
    max_seq_len: int,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    kv_starts: Tensor | None = None,
    return_lse: bool = False,
    invariant: bool = False,
    config: AttentionConfig = FALLBACK,
    validate: bool = False,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`kernels.attention.varlen.attention` with its keys split over `num_splits` programs (None: chosen from the work).

    Same arguments, results and errors. Good for every call, long prefill included: where splitting gains nothing it
    runs `varlen`. The workspace is `num_splits × num_tokens × num_heads × (head_dim_v + 2)` fp32 (in invariant mode,
    one part per segment of `max_seq_len`).
    """
    problem = Problem(
        q, k_cache, v_cache, block_table, query_start_loc, seq_lens, max_query_len, max_seq_len, scale, causal,
        window, softcap, alibi_slopes, sinks, k_scale, v_scale, kv_starts,
    )  # fmt: skip
    problem.check(split_kernel, validate)
    require(num_splits is None or num_splits >= 1, "num_splits", f"must be at least 1, got {num_splits}")
    if num_splits is None:
        tiles = query_grid(problem, config)[1]
        visible = max_seq_len if window is None else min(max_seq_len, window + max_query_len)
        num_splits = choose_num_splits(tiles * problem.num_kv_heads, visible, config.tile_kv, num_processors(q))
    out, lse = outputs(problem, return_lse)
    if num_splits == 1:
        varlen.plan(problem, out, lse, config, invariant).run()
        return out, lse
    acc, row_max, row_sum = partials(problem, num_segments(max_seq_len) if invariant else num_splits)
    plan(problem, acc, row_max, row_sum, config, num_splits, invariant).run()
    merge.plan(acc, row_max, row_sum, sinks, out, lse, FP_FUSION and not invariant).run()
    return out, lse
