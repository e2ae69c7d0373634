"""K and V of new tokens into the slots the scheduler chose.

Knows nothing of positions or requests: a slot is all a token has here.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from kernels.checks import FLOATS, check_cache, check_slots, check_tensor, check_unit_stride, check_vector, require
from kernels.launch import Launch, cdiv, next_power_of_2

TILE_TOKENS = 16


@triton.jit
def split_slot(slot_mapping_ptr, offs_token, num_tokens, num_blocks, KV_BLOCK: tl.constexpr):
    """Block and offset of each token's slot (int64), and which tokens have one inside the pool."""
    slot = tl.load(slot_mapping_ptr + offs_token, mask=offs_token < num_tokens, other=-1).to(tl.int64)
    mask = (slot >= 0) & (slot // KV_BLOCK < num_blocks)
    slot = tl.where(mask, slot, 0)
    return slot // KV_BLOCK, slot % KV_BLOCK, mask


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


def write_args(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> dict[str, Any]:
    """The arguments every write kernel takes, by name."""
    return {
        "k_ptr": k,
        "v_ptr": v,
        "k_cache_ptr": k_cache,
        "v_cache_ptr": v_cache,
        "slot_mapping_ptr": slot_mapping,
        "num_tokens": slot_mapping.shape[0],
        "num_blocks": k_cache.shape[0],
        "stride_k_token": k.stride(0),
        "stride_k_head": k.stride(1),
        "stride_v_token": v.stride(0),
        "stride_v_head": v.stride(1),
        "stride_k_cache_block": k_cache.stride(0),
        "stride_k_cache_slot": k_cache.stride(1),
        "stride_k_cache_head": k_cache.stride(2),
        "stride_v_cache_block": v_cache.stride(0),
        "stride_v_cache_slot": v_cache.stride(1),
        "stride_v_cache_head": v_cache.stride(2),
        "HEAD_DIM_K": k.shape[2],
        "HEAD_DIM_V": v.shape[2],
        "KV_BLOCK": k_cache.shape[1],
        "TILE_TOKENS": TILE_TOKENS,
        "TILE_DV": next_power_of_2(v.shape[2]),
    }


def check_write(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor, *, quantised: bool, validate: bool
) -> None:
    """Raises ValueError naming the argument. `validate` also reads the slots (and synchronises)."""
    check_tensor("k", k, (None, None, None), FLOATS, k.device)
    check_tensor("v", v, (*k.shape[:2], None), (k.dtype,), k.device)
    check_unit_stride("k", k)
    check_unit_stride("v", v)
    check_cache(k_cache, v_cache, k.device)
    for name, x, cache in (("k_cache", k, k_cache), ("v_cache", v, v_cache)):
        require(cache.shape[2:] == x.shape[1:], name, f"must hold heads and dims {list(x.shape[1:])}")
        require(
            quantised or cache.dtype == x.dtype,
            name,
            f"is {cache.dtype}, the new tokens are {x.dtype}: see scatter_quantised",
        )
    check_vector("slot_mapping", slot_mapping, k.shape[0], k.device)
    if validate:
        check_slots(slot_mapping, k_cache.shape[0] * k_cache.shape[1])


def plan(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> Launch:
    """The launch that writes `k` and `v`. `check_write` has passed."""
    args = write_args(k, v, k_cache, v_cache, slot_mapping) | {"TILE_DK": next_power_of_2(k.shape[2])}
    return Launch(scatter_kernel, (cdiv(k.shape[0], TILE_TOKENS), k.shape[1]), args, num_warps=4, num_stages=1)


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
