"""Quantise K and V on their way into the pool: fp8 (e4m3 or e5m2) or int8.

    per tensor       one scale for the pool, given; stored = saturate(x / scale)
    per token-head   scale = max|x| / largest value of the dtype, computed here and stored beside the slot

What is not finite stays visible: NaN is stored as NaN, and with scales per token and head a row that holds NaN or an
infinity gets a scale that is not finite either, so none of it reads back as a number, from int8 neither.

Knows nothing of calibration: a per-tensor scale comes from the caller.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import build, strided
from kernels.checks import QUANTISED, check_tensor, require
from kernels.launch import Launch, cdiv
from kernels.write.tokens import TILE_TOKENS, check_write, split_slot, write_facts

TINY = tl.constexpr(2.0**-100)  # a row no larger is stored as zeros: its own scale would underflow


@triton.jit
def magnitude(x):
    """max |x| of each row, NaN where it holds one: as integers, magnitudes order as floats do, and NaN tops all."""
    bits = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def rint(x):
    """Nearest integer, ties to even, for |x| < 2^22: adding 1.5 · 2^23 leaves no bits for a fraction."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def snap(x, MANTISSA: tl.constexpr, MIN_EXPONENT: tl.constexpr):
    """Nearest value with `MANTISSA` fraction bits and exponent ≥ `MIN_EXPONENT` (below: evenly spaced), ties to even.

    The cast that follows is then exact. A GPU's cast rounds the same way by itself; Triton's interpreter loses the
    carry of a mantissa that rounds up to 2 (1.97 becomes 1), and these few operations hide behind the loads anyway.
    What rounds to zero loses its sign.
    """
    exponent = ((x.to(tl.int32, bitcast=True) >> 23) & 255) - 127
    exponent = tl.maximum(exponent, MIN_EXPONENT) - MANTISSA
    step = ((exponent + 127) << 23).to(tl.float32, bitcast=True)
    per_step = ((127 - exponent) << 23).to(tl.float32, bitcast=True)
    return rint(x * per_step) * step


@triton.jit
def quantise_rows(
    src_ptr,  # [TILE_TOKENS] of pointers: each row's first element
    dst_ptr,  # [TILE_TOKENS] of pointers
    scale_ptr,  # [1], or [TILE_TOKENS] of pointers
    mask_token,  # [TILE_TOKENS]
    LARGEST: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    TILE_D: tl.constexpr,
):
    """Divide every row by its scale, saturate, round, store; and store the scale where it is the row's own."""
    offs_d = tl.arange(0, TILE_D)
    # [TILE_TOKENS, TILE_D]
    mask = mask_token[:, None] & (offs_d < HEAD_DIM)[None, :]
    x = tl.load(src_ptr[:, None] + offs_d[None, :], mask=mask, other=0.0).to(tl.float32)
    if SCALE_PER_TOKEN:
        peak = magnitude(x)
        scale = tl.where(peak <= TINY, 1.0, peak / LARGEST)
        tl.store(scale_ptr, scale, mask=mask_token)
        y = x / scale[:, None]
    else:
        y = x / tl.load(scale_ptr)
    y = tl.maximum(y, -LARGEST, propagate_nan=tl.PropagateNan.ALL)
    y = tl.minimum(y, LARGEST, propagate_nan=tl.PropagateNan.ALL)
    dtype: tl.constexpr = dst_ptr.dtype.element_ty
    if dtype == tl.int8:
        y = rint(y)
    elif dtype == tl.float8e4nv:
        y = snap(y, 3, -6)
    else:
        y = snap(y, 2, -14)
    tl.store(dst_ptr[:, None] + offs_d[None, :], y.to(dtype), mask=mask)


@triton.jit
def scatter_quantised_kernel(
    k_ptr,  # [num_tokens, num_kv_heads, HEAD_DIM_K]
    v_ptr,  # [num_tokens, num_kv_heads, HEAD_DIM_V]
    k_cache_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_K]
    v_cache_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_V]
    k_scale_ptr,  # [1], or [num_blocks, KV_BLOCK, num_kv_heads]
    v_scale_ptr,  # as k_scale_ptr, same strides
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
    stride_scale_block,
    stride_scale_slot,
    stride_scale_head,
    LARGEST: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
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
    token = offs_token.to(tl.int64)
    if SCALE_PER_TOKEN:
        offs_scale = block * stride_scale_block + slot * stride_scale_slot + head * stride_scale_head
        k_scale_ptr += offs_scale
        v_scale_ptr += offs_scale
    quantise_rows(
        k_ptr + token * stride_k_token + head * stride_k_head,
        k_cache_ptr + block * stride_k_cache_block + slot * stride_k_cache_slot + head * stride_k_cache_head,
        k_scale_ptr, mask_token, LARGEST, SCALE_PER_TOKEN, HEAD_DIM_K, TILE_DK,
    )  # fmt: skip
    quantise_rows(
        v_ptr + token * stride_v_token + head * stride_v_head,
        v_cache_ptr + block * stride_v_cache_block + slot * stride_v_cache_slot + head * stride_v_cache_head,
        v_scale_ptr, mask_token, LARGEST, SCALE_PER_TOKEN, HEAD_DIM_V, TILE_DV,
    )  # fmt: skip


def plan(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, k_scale: Tensor, v_scale: Tensor, slot_mapping: Tensor
) -> Launch:
    """The launch that quantises and writes. The checks have passed."""
    per_token = k_scale.dim() == 3
    return build(
        scatter_quantised_kernel,
        (cdiv(k.shape[0], TILE_TOKENS), k.shape[1]),
        write_facts(k, v, k_cache, v_cache, slot_mapping)
        | strided("scale", k_scale if per_token else None, "block", "slot", "head"),
        num_stages=1,
        k_scale_ptr=k_scale,
        v_scale_ptr=v_scale,
        LARGEST=127.0 if k_cache.dtype == torch.int8 else torch.finfo(k_cache.dtype).max,
        SCALE_PER_TOKEN=per_token,
    )


def scatter_quantised(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k_scale: Tensor,
    v_scale: Tensor,
    slot_mapping: Tensor,
    *,
    validate: bool = False,
) -> None:
    """`kernels.write.scatter.scatter` into float8_e4m3fn, float8_e5m2 or int8 pools.

    Scales are fp32: `[1]`, read (fp8 only), or `[num_blocks, block_size, num_kv_heads]`, written for each token's
    slot and head. Reading back, value = stored × scale. Raises ValueError naming the argument.
    """
    check_write(k, v, k_cache, v_cache, slot_mapping, quantised=True, validate=validate)
    require(k_cache.dtype in QUANTISED, "k_cache", f"must be fp8 or int8, got {k_cache.dtype}: see scatter")
    per_token = k_scale.dim() == 3
    require(
        per_token or k_cache.dtype != torch.int8,
        "k_scale",
        "must be [num_blocks, block_size, num_kv_heads] for an int8 cache",
    )
    shape = tuple(k_cache.shape[:3]) if per_token else (1,)
    check_tensor("k_scale", k_scale, shape, (torch.float32,), k.device)
    check_tensor("v_scale", v_scale, shape, (torch.float32,), k.device)
    require(k_scale.stride() == v_scale.stride(), "v_scale", "must have the strides of k_scale")
    plan(k, v, k_cache, v_cache, k_scale, v_scale, slot_mapping).run()
