"""The rows of a query tile: whose tokens they are, where those stand, and which keys they may see.

A row is one query token × one of the query heads that share a KV head (any ratio: 5 heads in a tile of 16 rows make 3
tokens and an idle row), so each key is read once per tile however many heads ask. Rows of a tile belong to one request.

Knows nothing of keys beyond their positions.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl

from kernels.attention.problem import Problem
from kernels.launch import next_power_of_2
from kernels.tuning import AttentionConfig


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


@triton.jit
def locate(
    query_start_loc_ptr,  # [num_requests + 1]
    num_requests,
    tile,
    TOKENS: tl.constexpr,  # query tokens per tile
    ONE_QUERY: tl.constexpr,  # every request has exactly one query token
):
    """The request of a query tile, the tile's first token within it, and the request's queries: start and count.

    Request r owns tiles [start_r // TOKENS + r, start_{r+1} // TOKENS + r + 1): at least as many as it needs, known
    without reading any length on the host. A tile too many finds its first token past the end and has no work.
    """
    if ONE_QUERY:
        request = tile
        first = tile * 0
    else:
        request = tile * 0
        past = request + num_requests
        while past - request > 1:
            middle = (request + past) // 2
            begins = tl.load(query_start_loc_ptr + middle).to(tl.int32) // TOKENS + middle
            request = tl.where(begins <= tile, middle, request)
            past = tl.where(begins <= tile, past, middle)
        begins = tl.load(query_start_loc_ptr + request).to(tl.int32) // TOKENS + request
        first = (tile - begins) * TOKENS
    query_start = tl.load(query_start_loc_ptr + request).to(tl.int32)
    query_len = tl.load(query_start_loc_ptr + request + 1).to(tl.int32) - query_start
    return request, first, query_start, query_len


@triton.jit
def rows_of_request(
    seq_lens_ptr,  # [num_requests]
    kv_starts_ptr,  # None, or [num_requests]
    request, first, query_start, query_len,  # as `locate` says
    kv_head,
    window,  # None: off
    CAUSAL: tl.constexpr,
    GROUP: tl.constexpr,
    TILE_Q: tl.constexpr,
):  # fmt: skip
    """`token`, `head`, `mask_row`, `q_pos` of every row `[TILE_Q]`, and the keys [kv_lo, kv_hi) any of them may see."""
    TOKENS: tl.constexpr = TILE_Q // GROUP
    seq_len = tl.load(seq_lens_ptr + request).to(tl.int32)
    kv_lo = 0
    if kv_starts_ptr is not None:
        kv_lo = tl.load(kv_starts_ptr + request).to(tl.int32)
    past = seq_len - query_len  # keys before the request's first query

    offs_q = tl.arange(0, TILE_Q)
    token = first + offs_q // GROUP
    head = kv_head * GROUP + offs_q % GROUP
    mask_row = (offs_q < TOKENS * GROUP) & (token < query_len)
    q_pos = past + token
    kv_hi = seq_len
    if CAUSAL:
        last = tl.minimum(first + TOKENS, query_len) - 1
        kv_hi = tl.minimum(seq_len, past + last + 1)
    if window is not None:
        kv_lo = tl.maximum(kv_lo, past + first - window + 1)
    return query_start + token, head, mask_row, q_pos, kv_lo, kv_hi


@triton.jit
def load_queries(
    q_ptr,  # [num_tokens, num_heads, HEAD_DIM_K]
    token,  # [TILE_Q]
    head,  # [TILE_Q]
    mask_row,  # [TILE_Q]
    stride_q_token,
    stride_q_head,
    HEAD_DIM_K: tl.constexpr,
    TILE_DK: tl.constexpr,
):
    """The query vectors of a tile's rows, zeros where a row or dimension is padding."""
    offs_dk = tl.arange(0, TILE_DK)
    offs_row = token.to(tl.int64) * stride_q_token + head.to(tl.int64) * stride_q_head
    # [TILE_Q, TILE_DK]
    mask = mask_row[:, None] & (offs_dk < HEAD_DIM_K)[None, :]
    return tl.load(q_ptr + offs_row[:, None] + offs_dk[None, :], mask=mask, other=0.0)


@triton.jit
def load_per_head(ptr, head, mask_row):
    """A number per head for each row `[TILE_Q]`, in fp32; None where there is no such tensor."""
    per_row = None
    if ptr is not None:
        per_row = tl.load(ptr + head, mask=mask_row, other=0.0).to(tl.float32)
    return per_row
