"""K and V of new tokens into the slots the scheduler chose.

Knows nothing of positions or requests: a slot is all a token has here.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build
from kernels.launch import Launch, cdiv
from kernels.write.tokens import TILE_TOKENS, check_write, split_slot, write_facts


@triton.jit
def scatter_kernel(
    k_ptr,  # [num_tokens, num_kv_heads, HEAD_DIM_K]
    v_ptr,  # [num_tokens, num_kv_heads, HEAD_DIM_V]
    k_cache_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_K]
    v_cache_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_V]
    slot_mapping_ptr,  # [num_tokens], negative: write nothing
    num_tokens,
    num_blocks,
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
    HEAD_DIM_K: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    KV_BLOCK: tl.constexpr,
    TILE_TOKENS: tl.constexpr,  # power of two
    TILE_DK: tl.constexpr,  # power of two, >= HEAD_DIM_K
    TILE_DV: tl.constexpr,  # power of two, >= HEAD_DIM_V
):
    """Grid: (token tiles, num_kv_heads)."""
    head = tl.program_id(1).to(tl.int64)
    offs_token = tl.program_id(0) * TILE_TOKENS + tl.arange(0, TILE_TOKENS)
    block, slot, mask_token = split_slot(slot_mapping_ptr, offs_token, num_tokens, num_blocks, KV_BLOCK)
    offs_token = offs_token.to(tl.int64)
    offs_dk = tl.arange(0, TILE_DK)
    offs_dv = tl.arange(0, TILE_DV)
    # [TILE_TOKENS, TILE_DK]
    mask_k = mask_token[:, None] & (offs_dk < HEAD_DIM_K)[None, :]
    k = tl.load(k_ptr + (offs_token * stride_k_token + head * stride_k_head)[:, None] + offs_dk[None, :], mask=mask_k)
    # [TILE_TOKENS, TILE_DV]
    mask_v = mask_token[:, None] & (offs_dv < HEAD_DIM_V)[None, :]
    v = tl.load(v_ptr + (offs_token * stride_v_token + head * stride_v_head)[:, None] + offs_dv[None, :], mask=mask_v)
    offs_k = block * stride_k_cache_block + slot * stride_k_cache_slot + head * stride_k_cache_head
    offs_v = block * stride_v_cache_block + slot * stride_v_cache_slot + head * stride_v_cache_head
    tl.store(k_cache_ptr + offs_k[:, None] + offs_dk[None, :], k, mask=mask_k)
    tl.store(v_cache_ptr + offs_v[:, None] + offs_dv[None, :], v, mask=mask_v)


def plan(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> Launch:
    """The launch that writes `k` and `v`. `check_write` has passed."""
    grid = (cdiv(k.shape[0], TILE_TOKENS), k.shape[1])
    return build(scatter_kernel, grid, write_facts(k, v, k_cache, v_cache, slot_mapping), num_stages=1)


def scatter(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor, *, validate: bool = False
) -> None:
    """Write `k [num_tokens, num_kv_heads, head_dim_k]` and `v` (own head dim) into the pools at `slot_mapping`.

    The pools are `[num_blocks, block_size, num_kv_heads, head_dim]`, of the dtype of `k`; any strides but the last,
    of inputs and pools alike. A negative slot writes nothing, nor does one past the pool. `validate` also refuses
    slots past the pool and one slot for two tokens. Raises ValueError naming the argument.
    """
    check_write(k, v, k_cache, v_cache, slot_mapping, quantised=False, validate=validate)
    plan(k, v, k_cache, v_cache, slot_mapping).run()
