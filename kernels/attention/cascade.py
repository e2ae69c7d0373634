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
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attention import merge, split_kv
from kernels.attention.forest import PrefixNode, check_forest, suffix_starts
from kernels.attention.problem import Problem
from kernels.attention.split_kv import choose_num_splits, num_processors, partials, store_part
from kernels.attention.tile import attend, load_queries
from kernels.attention.varlen import outputs, query_grid
from kernels.checks import require
from kernels.launch import Launch, cdiv, next_power_of_2
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
    slopes = None
    if alibi_ptr is not None:
        slopes = tl.load(alibi_ptr + head, mask=mask_row, other=0.0).to(tl.float32)

    # `attend` looks blocks up by absolute position, so the node's list is shifted to where its first token lies
    table_ptr = node_blocks_ptr + first_block - kv_lo // KV_BLOCK
    k_ptr += kv_head.to(tl.int64) * stride_k_head
    v_ptr += kv_head.to(tl.int64) * stride_v_head
    if SCALE_PER_TOKEN:
        k_scale_ptr += kv_head.to(tl.int64) * stride_scale_head
        v_scale_ptr += kv_head.to(tl.int64) * stride_scale_head
    acc, row_max, row_sum = attend(
        q, q_pos, slopes, kv_lo, kv_hi, table_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr,
        num_blocks, scale, softcap, window,
        stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, stride_scale_block, stride_scale_slot,
        False, SCALE_PER_TOKEN, HEAD_DIM_K, HEAD_DIM_V, KV_BLOCK, TILE_Q, TILE_KV, TILE_DK, TILE_DV,
    )  # fmt: skip
    store_part(
        acc, row_max, row_sum, acc_ptr, max_ptr, sum_ptr,
        part, token, head, mask_row, num_tokens, num_heads, HEAD_DIM_V, TILE_DV,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrefixWork:
    """A forest laid out for the kernel: int32 tensors, as the kernel's pointer arguments describe them.

    `num_parts` counts the parts the prefixes need: the most key ranges along any path of the forest.
    """

    node_blocks: Tensor
    node_tokens: Tensor
    node_positions: Tensor
    work: Tensor
    suffix_starts: Tensor
    num_parts: int
    max_suffix_len: int
    tile_q: int
    nodes: tuple[PrefixNode, ...]


def lay_out(
    nodes: Sequence[PrefixNode],
    query_start_loc: Sequence[int],
    seq_lens: Sequence[int],
    *,
    num_heads: int,
    num_kv_heads: int,
    block_size: int,
    device: torch.device,
    processors: int,
    config: AttentionConfig = FALLBACK,
) -> PrefixWork:
    """Turn a forest into work for the prefix kernel. Pure host work: do it once per step, for all layers.

    Raises ValueError naming `plan` for a forest `check_forest` refuses, or a node that reaches past the first query
    of one of its requests (the prefix must lie before every query).
    """
    num_requests = len(seq_lens)
    check_forest(nodes, block_size, num_requests)
    past = [seq_lens[r] - (query_start_loc[r + 1] - query_start_loc[r]) for r in range(num_requests)]
    group = num_heads // num_kv_heads
    tile_q = max(config.tile_q, next_power_of_2(group))
    per_tile = tile_q // group
    blocks: list[int] = []
    tokens: list[int] = []
    positions: list[int] = []
    work: list[list[int]] = []
    next_part = [0] * num_requests  # a request's parts are numbered along its path
    for node in sorted(nodes, key=lambda n: n.start):
        for r in node.requests:
            if node.stop > past[r]:
                raise ValueError(f"plan: a node ends at {node.stop}, past request {r}'s first query at {past[r]}")
        first_token, first_block = len(tokens), len(blocks)
        blocks.extend(node.blocks)
        for r in node.requests:
            tokens.extend(range(query_start_loc[r], query_start_loc[r + 1]))
            positions.extend(range(past[r], seq_lens[r]))
        count = len(tokens) - first_token
        tiles = cdiv(count, per_tile)
        splits = choose_num_splits(tiles * num_kv_heads, node.num_tokens, config.tile_kv, processors)
        step = cdiv(cdiv(len(node.blocks), splits) * block_size, config.tile_kv) * config.tile_kv
        step = cdiv(step, block_size) * block_size  # a range starts at a block, whatever the block size
        ranges = range(node.start, node.stop, step) if count else range(0)
        part = max(next_part[r] for r in node.requests)
        for i, lo in enumerate(ranges):
            for tile in range(tiles):
                at = tile * per_tile
                work.append(
                    [
                        first_block + (lo - node.start) // block_size,
                        lo,
                        min(node.stop, lo + step),
                        first_token + at,
                        min(per_tile, count - at),
                        part + i,
                    ]
                )
        for r in node.requests:
            next_part[r] = part + len(ranges)

    def int32(values: Sequence[int] | Sequence[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=device)

    suffixes = suffix_starts(nodes, num_requests)
    longest = max((n - s for n, s in zip(seq_lens, suffixes, strict=True)), default=0)
    return PrefixWork(
        int32(blocks), int32(tokens), int32(positions), int32(work).view(-1, 6),
        int32(suffixes), max(next_part, default=0), longest, tile_q, tuple(nodes),
    )  # fmt: skip


def plan_prefix(
    problem: Problem,
    prefix: PrefixWork,
    first_part: int,
    acc: Tensor,
    row_max: Tensor,
    row_sum: Tensor,
    config: AttentionConfig,
) -> Launch:
    """The launch that fills the workspace's parts from `first_part` on with the prefixes."""
    args = problem.kernel_args() | {
        "node_blocks_ptr": prefix.node_blocks,
        "node_tokens_ptr": prefix.node_tokens,
        "node_positions_ptr": prefix.node_positions,
        "work_ptr": prefix.work,
        "acc_ptr": acc[first_part:],
        "max_ptr": row_max[first_part:],
        "sum_ptr": row_sum[first_part:],
        "num_tokens": problem.q.shape[0],
        "num_heads": problem.q.shape[1],
        "TILE_Q": prefix.tile_q,
        "TILE_KV": config.tile_kv,
    }
    grid = (prefix.work.shape[0], problem.num_kv_heads)
    return Launch(prefix_kernel, grid, args, config.num_warps, config.num_stages)


def cascade(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    query_start_loc: Tensor,
    seq_lens: Tensor,
    max_query_len: int,
    max_seq_len: int,
    plan: Sequence[PrefixNode] | PrefixWork,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    return_lse: bool = False,
    config: AttentionConfig = FALLBACK,
    suffix_config: AttentionConfig = FALLBACK,
    validate: bool = False,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor | None]:
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
        q, k_cache, v_cache, block_table, query_start_loc, seq_lens, max_query_len, max_seq_len, scale, True,
        window, softcap, alibi_slopes, sinks, k_scale, v_scale, plan.suffix_starts,
    )  # fmt: skip
    problem.check(prefix_kernel, validate)
    require(num_splits is None or num_splits >= 1, "num_splits", f"must be at least 1, got {num_splits}")
    if num_splits is None:
        programs = query_grid(problem, suffix_config)[1] * problem.num_kv_heads
        num_splits = choose_num_splits(programs, plan.max_suffix_len, suffix_config.tile_kv, num_processors(q))
    out, lse = outputs(problem, return_lse)
    acc, row_max, row_sum = partials(problem, num_splits + plan.num_parts)
    row_max[num_splits:].fill_(float("-inf"))  # requests outside a node never write its parts
    split_kv.plan(problem, acc, row_max, row_sum, suffix_config, num_splits, invariant=False).run()
    plan_prefix(problem, plan, num_splits, acc, row_max, row_sum, config).run()
    merge.plan(acc, row_max, row_sum, sinks, out, lse).run()
    return out, lse
