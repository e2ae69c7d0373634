"""Rotate Q and K by their positions and write K and V, in one pass over new tokens.

Fused because each step alone is a round trip of small tensors through memory: K would be read and written to be
rotated, then read and written again to be stored.

Knows nothing of how the angles were made (base, scaling, long-context variants): `cos` and `sin` are tables.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build, strided
from kernels.checks import check_tensor, check_unit_stride, check_vector, require
from kernels.launch import Launch, cdiv, next_power_of_2, refuse_bf16_interpreted
from kernels.write.tokens import TILE_TOKENS, check_write, split_slot, write_facts


@triton.jit
def rotate_rows(
    src_ptr,  # [TILE_TOKENS] of pointers: each row's first element
    dst_ptr,  # [TILE_TOKENS] of pointers
    cos,  # [TILE_TOKENS, TILE_HALF]
    sin,  # [TILE_TOKENS, TILE_HALF]
    mask_src,  # [TILE_TOKENS]
    mask_dst,  # [TILE_TOKENS]
    INTERLEAVED: tl.constexpr,
    HALF: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_HALF: tl.constexpr,
    TILE_REST: tl.constexpr,  # 0 where the whole head turns
):
    """Turn the first 2 × HALF dimensions of every row, copy the rest."""
    offs_half = tl.arange(0, TILE_HALF)
    if INTERLEAVED:
        offs_1 = 2 * offs_half
        offs_2 = 2 * offs_half + 1
    else:
        offs_1 = offs_half
        offs_2 = offs_half + HALF
    # [TILE_TOKENS, TILE_HALF]
    mask_half = (offs_half < HALF)[None, :]
    x1 = tl.load(src_ptr[:, None] + offs_1[None, :], mask=mask_src[:, None] & mask_half).to(tl.float32)
    x2 = tl.load(src_ptr[:, None] + offs_2[None, :], mask=mask_src[:, None] & mask_half).to(tl.float32)
    dtype = dst_ptr.dtype.element_ty
    tl.store(dst_ptr[:, None] + offs_1[None, :], (x1 * cos - x2 * sin).to(dtype), mask=mask_dst[:, None] & mask_half)
    tl.store(dst_ptr[:, None] + offs_2[None, :], (x2 * cos + x1 * sin).to(dtype), mask=mask_dst[:, None] & mask_half)
    if TILE_REST > 0:
        offs_rest = 2 * HALF + tl.arange(0, TILE_REST)
        mask_rest = (offs_rest < HEAD_DIM)[None, :]
        rest = tl.load(src_ptr[:, None] + offs_rest[None, :], mask=mask_src[:, None] & mask_rest)
        tl.store(dst_ptr[:, None] + offs_rest[None, :], rest, mask=mask_dst[:, None] & mask_rest)


@triton.jit
def rope_scatter_kernel(
    q_ptr,  # [num_tokens, num_heads, HEAD_DIM_K]
    q_out_ptr,  # [num_tokens, num_heads, HEAD_DIM_K]
    k_ptr,  # [num_tokens, num_kv_heads, HEAD_DIM_K]
    v_ptr,  # [num_tokens, num_kv_heads, HEAD_DIM_V]
    cos_ptr,  # [max_positions, HALF]
    sin_ptr,  # [max_positions, HALF]
    positions_ptr,  # [num_tokens]
    k_cache_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_K]
    v_cache_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_V]
    slot_mapping_ptr,  # [num_tokens], negative: write nothing
    num_tokens,
    num_heads,
    num_blocks,
    stride_q_token,
    stride_q_head,
    stride_q_out_token,
    stride_q_out_head,
    stride_k_token,
    stride_k_head,
    stride_v_token,
    stride_v_head,
    stride_k_cache_block,
    stride_k_cache_slot,
    stride_k_cache_head,
    stride_v_cache_block,
    stride_v_cache_slot,
    stride_v_cache_head,
    INTERLEAVED: tl.constexpr,
    HALF: tl.constexpr,
    HEAD_DIM_K: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    KV_BLOCK: tl.constexpr,
    TILE_TOKENS: tl.constexpr,  # power of two
    TILE_HALF: tl.constexpr,  # power of two, >= HALF
    TILE_REST: tl.constexpr,  # 0, or power of two >= HEAD_DIM_K - 2 * HALF
    TILE_DV: tl.constexpr,  # power of two, >= HEAD_DIM_V
):
    """Grid: (token tiles, num_heads + num_kv_heads). The first num_heads columns turn Q, the others K, and move V."""
    column = tl.program_id(1)
    offs_token = tl.program_id(0) * TILE_TOKENS + tl.arange(0, TILE_TOKENS)
    offs_half = tl.arange(0, TILE_HALF)
    mask_token = offs_token < num_tokens
    position = tl.load(positions_ptr + offs_token, mask=mask_token, other=0).to(tl.int64)
    # [TILE_TOKENS, TILE_HALF]
    offs_angle = (position * HALF)[:, None] + offs_half[None, :]
    mask_angle = mask_token[:, None] & (offs_half < HALF)[None, :]
    cos = tl.load(cos_ptr + offs_angle, mask=mask_angle, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + offs_angle, mask=mask_angle, other=0.0).to(tl.float32)
    if column < num_heads:
        token = offs_token.to(tl.int64)
        head = column.to(tl.int64)
        rotate_rows(
            q_ptr + token * stride_q_token + head * stride_q_head,
            q_out_ptr + token * stride_q_out_token + head * stride_q_out_head,
            cos, sin, mask_token, mask_token, INTERLEAVED, HALF, HEAD_DIM_K, TILE_HALF, TILE_REST,
        )  # fmt: skip
    else:
        head = (column - num_heads).to(tl.int64)
        block, slot, mask_slot = split_slot(slot_mapping_ptr, offs_token, num_tokens, num_blocks, KV_BLOCK)
        token = offs_token.to(tl.int64)
        offs_k = block * stride_k_cache_block + slot * stride_k_cache_slot + head * stride_k_cache_head
        rotate_rows(
            k_ptr + token * stride_k_token + head * stride_k_head,
            k_cache_ptr + offs_k,
            cos, sin, mask_token, mask_slot, INTERLEAVED, HALF, HEAD_DIM_K, TILE_HALF, TILE_REST,
        )  # fmt: skip
        # [TILE_TOKENS, TILE_DV]
        offs_dv = tl.arange(0, TILE_DV)
        mask_v = mask_slot[:, None] & (offs_dv < HEAD_DIM_V)[None, :]
        offs_src = token * stride_v_token + head * stride_v_head
        v = tl.load(v_ptr + offs_src[:, None] + offs_dv[None, :], mask=mask_v)
        offs_v = block * stride_v_cache_block + slot * stride_v_cache_slot + head * stride_v_cache_head
        tl.store(v_cache_ptr + offs_v[:, None] + offs_dv[None, :], v, mask=mask_v)


def plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    q_out: Tensor,
    interleaved: bool,
) -> Launch:
    """The launch that rotates `q` into `q_out` and writes K and V. The checks have passed."""
    half, rest = cos.shape[1], k.shape[2] - 2 * cos.shape[1]
    return build(
        rope_scatter_kernel,
        (cdiv(k.shape[0], TILE_TOKENS), q.shape[1] + k.shape[1]),
        write_facts(k, v, k_cache, v_cache, slot_mapping)
        | strided("q", q, "token", "head")
        | strided("q_out", q_out, "token", "head"),
        num_stages=1,
        cos_ptr=cos,
        sin_ptr=sin,
        positions_ptr=positions,
        num_heads=q.shape[1],
        INTERLEAVED=interleaved,
        HALF=half,
        TILE_HALF=next_power_of_2(half),
        TILE_REST=next_power_of_2(rest) if rest else 0,
    )


def rope_scatter(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Tensor,
    *,
    interleaved: bool = False,
    validate: bool = False,
) -> Tensor:
    """Rotary embedding (Su et al. 2021) of q and k, then `kernels.write.scatter.scatter` of the turned k and of v.

    `q [num_tokens, num_heads, head_dim_k]`; `cos`, `sin [max_positions, rotary_dim / 2]`, contiguous, fp32 or q's
    dtype; `positions [num_tokens]` index them. Dimensions from rotary_dim on pass through. Pairs are (i, i + half),
    or (2i, 2i + 1) if `interleaved`. Products are fp32. Slots as in `scatter`. Returns the rotated q, contiguous.
    Raises ValueError naming the argument; `validate` also checks that positions lie within the tables.
    """
    check_write(k, v, k_cache, v_cache, slot_mapping, quantised=False, validate=validate)
    check_tensor("q", q, (k.shape[0], None, k.shape[2]), (k.dtype,), k.device)
    check_unit_stride("q", q)
    refuse_bf16_interpreted(rope_scatter_kernel, "q", q)
    check_tensor("cos", cos, (None, None), (torch.float32, q.dtype), q.device)
    check_tensor("sin", sin, tuple(cos.shape), (cos.dtype,), q.device)
    require(cos.is_contiguous(), "cos", "must be contiguous")
    require(sin.is_contiguous(), "sin", "must be contiguous")
    require(0 < 2 * cos.shape[1] <= q.shape[2], "cos", f"turns {2 * cos.shape[1]} of {q.shape[2]} dimensions")
    check_vector("positions", positions, q.shape[0], q.device)
    if validate and positions.numel():
        inside = int(positions.min()) >= 0 and int(positions.max()) < cos.shape[0]
        require(inside, "positions", f"must lie in 0..{cos.shape[0] - 1}")
    q_out = q.new_empty(q.shape)
    plan(q, k, v, cos, sin, positions, k_cache, v_cache, slot_mapping, q_out, interleaved).run()
    return q_out
