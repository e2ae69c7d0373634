"""One kernel for prefill, chunked prefill over a cached prefix, and decode.

A program takes a tile of query rows of one KV head and walks that request's keys once. The rows are query tokens ×
the query heads that share the KV head (any ratio: 5 heads in a tile of 16 rows make 3 tokens and an idle row), so
each key is read once per tile however many heads ask.

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

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention.problem import Problem
from kernels.attention.tile import add_sinks, attend, finish, fold, key_range, load_queries, locate
from kernels.launch import FP_FUSION, Launch, cdiv, next_power_of_2
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
    stride_table_request,
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
    TOKENS: tl.constexpr = TILE_Q // GROUP
    kv_head = tl.program_id(1)
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
        acc, row_max, row_sum = attend(
            q, q_pos, slopes, kv_lo, kv_hi, table_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr,
            num_blocks, scale, softcap, window,
            stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, stride_scale_block, stride_scale_slot,
            CAUSAL, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
        )  # fmt: skip
    else:
        acc = tl.zeros([TILE_Q, TILE_DV], tl.float32)
        row_max = tl.full([TILE_Q], float("-inf"), tl.float32)
        row_sum = tl.zeros([TILE_Q], tl.float32)
        for segment in range(kv_lo // SEGMENT * SEGMENT, kv_hi, SEGMENT):
            acc_next, max_next, sum_next = attend(
                q, q_pos, slopes, tl.maximum(kv_lo, segment), tl.minimum(kv_hi, segment + SEGMENT),
                table_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr,
                num_blocks, scale, softcap, window,
                stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, stride_scale_block, stride_scale_slot,
                CAUSAL, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
            )  # fmt: skip
            acc, row_max, row_sum = fold(acc, row_max, row_sum, acc_next, max_next, sum_next)

    if sinks_ptr is not None:
        sinks = tl.load(sinks_ptr + head, mask=mask_row, other=0.0).to(tl.float32)
        acc, row_max, row_sum = add_sinks(acc, row_max, row_sum, sinks)
    out, lse = finish(acc, row_max, row_sum)
    # [TILE_Q, TILE_DV]
    offs_dv = tl.arange(0, TILE_DV)
    out_ptrs = out_ptr + (token.to(tl.int64) * stride_out_token + head * stride_out_head)[:, None] + offs_dv[None, :]
    mask_out = mask_row[:, None] & (offs_dv < HEAD_DIM_V)[None, :]
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask_out)
    if lse_ptr is not None:
        tl.store(lse_ptr + token.to(tl.int64) * stride_lse_token + head, lse, mask=mask_row)


def query_grid(problem: Problem, config: AttentionConfig) -> tuple[int, int, bool]:
    """Rows per tile, number of query tiles, and whether each request is known to have exactly one query token.

    The tile grows to hold all heads of one token. Without reading any length on the host, `num_tokens // tokens +
    num_requests` tiles are always enough (see `locate`); surplus programs return at once.
    """
    num_tokens, num_requests = problem.q.shape[0], problem.num_requests
    tile_q = max(config.tile_q, next_power_of_2(problem.group))
    one_query = problem.max_query_len == 1 and num_tokens == num_requests
    tiles = num_requests if one_query else num_tokens // (tile_q // problem.group) + num_requests
    return tile_q, tiles if num_tokens else 0, one_query


def plan(problem: Problem, out: Tensor, lse: Tensor | None, config: AttentionConfig, invariant: bool) -> Launch:
    """The launch that computes `problem` into `out` (and `lse`). `problem.check` has passed."""
    tile_q, tiles, one_query = query_grid(problem, config)
    args = problem.kernel_args() | problem.request_args()
    args |= {
        "sinks_ptr": problem.sinks,
        "out_ptr": out,
        "lse_ptr": lse,
        "stride_out_token": out.stride(0),
        "stride_out_head": out.stride(1),
        "stride_lse_token": out.shape[1],
        "ONE_QUERY": one_query,
        "SEGMENT": SEGMENT if invariant else 0,
        "TILE_Q": tile_q,
        "TILE_KV": min(config.tile_kv, SEGMENT),
    }
    grid = (tiles, problem.num_kv_heads)
    return Launch(varlen_kernel, grid, args, config.num_warps, config.num_stages, FP_FUSION and not invariant)


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
) -> tuple[Tensor, Tensor | None]:
    """Attention of each request's last tokens over its cached keys and values (theirs included, written before).

    Shapes: `q [num_tokens, num_heads, head_dim_k]`; `k_cache [num_blocks, block_size, num_kv_heads, head_dim_k]` and
    `v_cache` (own head dim) with any strides but the last; `block_table [num_requests, max_blocks]`,
    `query_start_loc [num_requests + 1]` and `seq_lens [num_requests]` int32 or int64. `max_query_len` and
    `max_seq_len` bound the lengths in the batch, in tokens.

    Options, free when off: `scale` (default head_dim_k**-0.5); `causal`; `window`, keys visible per query, itself
    included; `softcap`; `alibi_slopes` and `sinks [num_heads]`; `k_scale`/`v_scale` of an fp8 or int8 cache, fp32,
    `[1]` or `[num_blocks, block_size, num_kv_heads]`; `kv_starts [num_requests]`, first key a request attends to.
    `invariant`, see the module docstring; for it to hold, `config` must be the same for every call.

    Returns out `[num_tokens, num_heads, head_dim_v]` in q's dtype, zeros where a query sees no key, and (asked for)
    its natural log-sum-exp `[num_tokens, num_heads]` fp32, sinks counted, −inf where a query sees nothing.
    Raises ValueError naming the argument; `validate` also checks the metadata's ranges, synchronising with the GPU.
    """
    problem = Problem(
        q, k_cache, v_cache, block_table, query_start_loc, seq_lens, max_query_len, max_seq_len, scale, causal,
        window, softcap, alibi_slopes, sinks, k_scale, v_scale, kv_starts,
    )  # fmt: skip
    problem.check(varlen_kernel, validate)
    out, lse = outputs(problem, return_lse)
    plan(problem, out, lse, config, invariant).run()
    return out, lse


def outputs(problem: Problem, return_lse: bool) -> tuple[Tensor, Tensor | None]:
    """Uninitialised out and, if asked for, lse."""
    num_tokens, num_heads = problem.q.shape[:2]
    out = problem.q.new_empty(num_tokens, num_heads, problem.v_cache.shape[3])
    lse = problem.q.new_empty(num_tokens, num_heads, dtype=torch.float32) if return_lse else None
    return out, lse


def num_segments(max_seq_len: int) -> int:
    """Segments of invariant mode that cover `max_seq_len` keys; at least one."""
    return max(1, cdiv(max_seq_len, SEGMENT))
