"""Shared prefixes read once for all the requests that share them, then merged with each request's own suffix.

Three launches over one workspace of partial results (see `merge`):

    suffix   `split_kv` over keys [end of a request's last node, seq_len)      parts 0 .. num_splits − 1
    prefix   one program per (node, tile of query rows, KV head, key range)    parts num_splits ..
    merge    all parts of each row, in order

A node's rows are the query tokens of all its requests, × the heads of a KV group, packed densely: 64 decoding requests
with 4 heads per KV head fill four 64-row tiles where alone each fills 4 rows. Long nodes are cut into key ranges so
that few tiles still occupy the GPU. All query tokens lie after the prefix, so no causal mask is needed there.

Knows nothing of whether a plan pays (`forest.plan_cascade` does), nor of invariant mode: node ends are not segments.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build
from kernels.attention import merge, split_kv
from kernels.attention.forest import PrefixNode
from kernels.attention.parts import Parts, new_parts, store_part
from kernels.attention.prefix_work import PrefixWork, lay_out
from kernels.attention.problem import Problem, Scoring
from kernels.attention.rows import load_per_head, load_queries, query_grid
from kernels.attention.splits import choose_num_splits, num_processors
from kernels.attention.tile import attend, keys_of_head
from kernels.checks import require
from kernels.launch import Launch
from kernels.tuning import FALLBACK, AttentionConfig


@triton.jit
def prefix_kernel(
    q_ptr,  # [num_tokens, num_heads, HEAD_DIM_K]
    k_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_K]
    v_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_V]
    k_scale_ptr,  # None, [1], or [num_blocks, KV_BLOCK, num_kv_heads]
    v_scale_ptr,  # as k_scale_ptr
    alibi_ptr,  # None, or [num_heads]
    node_blocks_ptr,  # block ids of all nodes, end to end
    node_tokens_ptr,  # query tokens of all nodes, end to end
    node_positions_ptr,  # the absolute position of each of them
    work_ptr,  # [num_work, 6]: first block, kv_lo, kv_hi, first token, tokens, part
    acc_ptr,  # [num_parts, num_tokens, num_heads, HEAD_DIM_V]
    max_ptr,  # [num_parts, num_tokens, num_heads]
    sum_ptr,  # [num_parts, num_tokens, num_heads]
    num_blocks,
    num_tokens,
    num_heads,
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
    SCALE_PER_TOKEN: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM_K: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    KV_BLOCK: tl.constexpr,
    TILE_Q: tl.constexpr,  # power of two, >= GROUP
    TILE_KV: tl.constexpr,  # power of two
    TILE_DK: tl.constexpr,  # power of two
    TILE_DV: tl.constexpr,  # power of two
):
    """Grid: (num_work, num_kv_heads)."""
    work_ptr += tl.program_id(0) * 6
    kv_head = tl.program_id(1)
    first_block = tl.load(work_ptr)
    kv_lo = tl.load(work_ptr + 1)
    kv_hi = tl.load(work_ptr + 2)
    first_token = tl.load(work_ptr + 3)
    tokens = tl.load(work_ptr + 4)
    part = tl.load(work_ptr + 5)

    offs_q = tl.arange(0, TILE_Q)
    mask_row = offs_q // GROUP < tokens
    token = tl.load(node_tokens_ptr + first_token + offs_q // GROUP, mask=mask_row, other=0)
    q_pos = tl.load(node_positions_ptr + first_token + offs_q // GROUP, mask=mask_row, other=0)
    head = kv_head * GROUP + offs_q % GROUP
    q = load_queries(q_ptr, token, head, mask_row, stride_q_token, stride_q_head, HEAD_DIM_K, TILE_DK)
    slopes = load_per_head(alibi_ptr, head, mask_row)

    # `attend` looks blocks up by absolute position, so the node's list is shifted to where its first token lies
    table_ptr = node_blocks_ptr + first_block - kv_lo // KV_BLOCK
    keys = keys_of_head(
        kv_head, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, num_blocks,
        stride_k_block, stride_k_slot, stride_k_head, stride_v_block, stride_v_slot, stride_v_head,
        stride_scale_block, stride_scale_slot, stride_scale_head, SCALE_PER_TOKEN,
    )  # fmt: skip
    acc, row_max, row_sum = attend(
        q, q_pos, slopes, kv_lo, kv_hi, table_ptr, keys, scale, softcap, window,
        False, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
    )  # fmt: skip
    store_part(
        acc, row_max, row_sum, acc_ptr, max_ptr, sum_ptr,
        part, token, head, mask_row, num_tokens, num_heads, HEAD_DIM_V, TILE_DV,
    )  # fmt: skip


def plan_prefix(problem: Problem, prefix: PrefixWork, parts: Parts, config: AttentionConfig) -> Launch:
    """The launch that fills `parts` with the prefixes."""
    return build(
        prefix_kernel,
        (prefix.work.shape[0], problem.num_kv_heads),
        problem.facts() | prefix.facts() | parts.facts(),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        TILE_Q=prefix.tile_q,
        TILE_KV=config.tile_kv,
    )


def cascade(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, query_start_loc: Tensor, seq_lens: Tensor,
    max_query_len: int, max_seq_len: int, plan: Sequence[PrefixNode] | PrefixWork, *, return_lse: bool = False,
    config: AttentionConfig = FALLBACK, suffix_config: AttentionConfig = FALLBACK, validate: bool = False,
    num_splits: int | None = None, **options: Unpack[Scoring],
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Causal attention of a batch whose requests share prefixes, as `kernels.attention.varlen.attention` defines it.

    `plan` is a forest of `PrefixNode`s, or what `lay_out` made of one (with `config`, for all layers of a step; a bare
    forest is laid out here, which synchronises). Columns of `block_table` that nodes cover are not read. `config`
    tiles the prefixes, `suffix_config` the suffixes, which are split over `num_splits` programs. An empty forest is a
    plain `split_kv` call. Other arguments, results and errors as in `varlen`; errors in a forest name `plan`.
    """
    if not isinstance(plan, PrefixWork):
        plan = lay_out(
            plan, query_start_loc.tolist(), seq_lens.tolist(), num_heads=q.shape[1], num_kv_heads=k_cache.shape[2],
            block_size=k_cache.shape[1], device=q.device, processors=num_processors(q), config=config,
        )  # fmt: skip
    problem = Problem(
        q, k_cache, v_cache, block_table, query_start_loc, seq_lens, max_query_len, max_seq_len,
        causal=True, kv_starts=plan.suffix_starts, **options,
    )  # fmt: skip
    problem.check(prefix_kernel, validate)
    if validate:
        inside = all(0 <= block < k_cache.shape[0] for node in plan.nodes for block in node.blocks)
        require(inside, "plan", f"names a block outside 0..{k_cache.shape[0] - 1}")
    require(num_splits is None or num_splits >= 1, "num_splits", f"must be at least 1, got {num_splits}")
    if num_splits is None:
        programs = query_grid(problem, suffix_config)[1] * problem.num_kv_heads
        num_splits = choose_num_splits(programs, plan.max_suffix_len, suffix_config.tile_kv, num_processors(q))
    out, lse = problem.new_outputs(return_lse)
    parts = new_parts(problem, num_splits + plan.num_parts)
    prefixes = parts.since(num_splits)
    prefixes.row_max.fill_(float("-inf"))  # requests outside a node never write its parts
    split_kv.plan(problem, parts, suffix_config, num_splits, invariant=False).run()
    plan_prefix(problem, plan, prefixes, config).run()
    merge.plan(parts, problem.sinks, out, lse).run()
    return out, lse
