"""The inside of every attention kernel: one tile of query rows against a range of keys, and how two ranges combine.

The softmax runs in base 2 (`exp2` is one instruction). A range yields three things per row:

    row_max = max_j s_j          row_sum = Σ_j 2^(s_j − row_max)          acc = Σ_j 2^(s_j − row_max) · v_j

and two disjoint ranges *fold* into one by rescaling both to the larger maximum. A row that saw no key holds
(−inf, 0, 0) and folding it changes no bit of the other: that is what makes invariant mode possible.

Knows nothing of requests: callers say which rows, which keys, and which row of a block table.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from typing import NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


class Keys(NamedTuple):
    """K and V of one KV head, as `attend` walks them: pointers at that head, strides in elements."""

    k_ptr: tl.tensor  # [num_blocks, KV_BLOCK, HEAD_DIM_K]
    v_ptr: tl.tensor  # [num_blocks, KV_BLOCK, HEAD_DIM_V]
    k_scale_ptr: tl.tensor | None  # None, [1], or [num_blocks, KV_BLOCK]
    v_scale_ptr: tl.tensor | None
    num_blocks: tl.tensor
    stride_k_block: tl.tensor
    stride_k_slot: tl.tensor
    stride_v_block: tl.tensor
    stride_v_slot: tl.tensor
    stride_scale_block: tl.tensor
    stride_scale_slot: tl.tensor


@triton.jit
def keys_of_head(
    kv_head,
    k_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_K]
    v_ptr,  # [num_blocks, KV_BLOCK, num_kv_heads, HEAD_DIM_V]
    k_scale_ptr,  # None, [1], or [num_blocks, KV_BLOCK, num_kv_heads]
    v_scale_ptr,  # as k_scale_ptr
    num_blocks,
    stride_k_block, stride_k_slot, stride_k_head,
    stride_v_block, stride_v_slot, stride_v_head,
    stride_scale_block, stride_scale_slot, stride_scale_head,
    SCALE_PER_TOKEN: tl.constexpr,
):  # fmt: skip
    """The pool seen from one KV head."""
    k_ptr += kv_head.to(tl.int64) * stride_k_head
    v_ptr += kv_head.to(tl.int64) * stride_v_head
    if SCALE_PER_TOKEN:
        k_scale_ptr += kv_head.to(tl.int64) * stride_scale_head
        v_scale_ptr += kv_head.to(tl.int64) * stride_scale_head
    return Keys(
        k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, num_blocks,
        stride_k_block, stride_k_slot, stride_v_block, stride_v_slot, stride_scale_block, stride_scale_slot,
    )  # fmt: skip


@triton.jit
def inside(index, size):
    """0 <= index < size, in one comparison: as an unsigned number, a negative index is larger than any size."""
    if index.dtype.primitive_bitwidth == 64:
        unsigned = index.to(tl.uint64)
    else:
        unsigned = index.to(tl.uint32)
    return unsigned < size


@triton.jit
def capped(s, softcap):
    """softcap · tanh(s / softcap), by exp2 alone; saturates cleanly where exp2 overflows."""
    return softcap * (1.0 - 2.0 / (tl.exp2(s * (2.0 * LOG2E / softcap)) + 1.0))


@triton.jit
def fold(acc, row_max, row_sum, acc_next, max_next, sum_next):
    """Two disjoint ranges of keys as one. Exact where either is empty."""
    new_max = tl.maximum(row_max, max_next)
    safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
    left = tl.exp2(row_max - safe_max)
    right = tl.exp2(max_next - safe_max)
    # [TILE_Q, TILE_DV]
    acc = acc * left[:, None] + acc_next * right[:, None]
    return acc, new_max, row_sum * left + sum_next * right


@triton.jit
def add_sinks(acc, row_max, row_sum, sinks):
    """One more key per row with logit `sinks` (natural units) and a value of zero: it only grows the denominator."""
    return fold(acc, row_max, row_sum, tl.zeros_like(acc), sinks * LOG2E, tl.zeros_like(row_sum) + 1.0)


@triton.jit
def finish(acc, row_max, row_sum):
    """Normalised output and natural-log LSE; zeros and −inf for a row that saw no key."""
    seen = row_sum > 0.0
    out = acc / tl.where(seen, row_sum, 1.0)[:, None]
    lse = tl.where(seen, (row_max + tl.log2(tl.where(seen, row_sum, 1.0))) * LN2, float("-inf"))
    return out, lse


@triton.jit
def attend(
    q,  # [TILE_Q, TILE_DK]
    q_pos,  # [TILE_Q] absolute position of each row's token
    slopes,  # [TILE_Q] ALiBi slope, or None
    kv_lo,  # keys at kv_lo <= position < kv_hi are visited
    kv_hi,
    table_ptr,  # block id of the tokens at positions i * KV_BLOCK and on: table_ptr[i]
    keys,  # Keys
    scale,
    softcap,  # None: off
    window,  # None: off; otherwise a query sees itself and the window - 1 keys before it
    CAUSAL: tl.constexpr,
    SCALE_PER_TOKEN: tl.constexpr,
    HEAD_DIM_K: tl.constexpr,
    HEAD_DIM_V: tl.constexpr,
    KV_BLOCK: tl.constexpr,  # any size, powers of two or not
    TILE_Q: tl.constexpr,  # power of two, >= 16
    TILE_KV: tl.constexpr,  # power of two, >= 16
    TILE_DK: tl.constexpr,  # power of two, >= HEAD_DIM_K
    TILE_DV: tl.constexpr,  # power of two, >= HEAD_DIM_V
):
    """Attention of the tile's rows over [kv_lo, kv_hi): `acc`, `row_max`, `row_sum`, not yet normalised.

    Tiles of keys start at multiples of TILE_KV in absolute positions, wherever kv_lo lies. Slots outside the range,
    and blocks outside the pool, are neither read nor counted, so NaN there reaches nothing.
    """
    offs_kv = tl.arange(0, TILE_KV)
    offs_dk = tl.arange(0, TILE_DK)
    offs_dv = tl.arange(0, TILE_DV)
    row_max = tl.full([TILE_Q], float("-inf"), tl.float32)
    row_sum = tl.zeros([TILE_Q], tl.float32)
    acc = tl.zeros([TILE_Q, TILE_DV], tl.float32)
    if keys.k_scale_ptr is not None and not SCALE_PER_TOKEN:
        scale = scale * tl.load(keys.k_scale_ptr)

    first = kv_lo // TILE_KV * TILE_KV
    for start in tl.range(first, tl.where(kv_hi > kv_lo, kv_hi, first), TILE_KV):  # no turn over an empty range
        kv_pos = start + offs_kv
        mask_kv = inside(kv_pos - kv_lo, kv_hi - kv_lo)
        if KV_BLOCK % TILE_KV == 0:
            block = tl.load(table_ptr + start // KV_BLOCK)  # the whole tile lies in one block
        else:
            # unsigned: a signed division rounds towards zero, which costs instructions in every row
            block = tl.load(table_ptr + kv_pos.to(tl.uint32) // KV_BLOCK, mask=mask_kv, other=-1)
        mask_kv = mask_kv & inside(block, keys.num_blocks)
        # int64 before any stride: a pool passes 2^31 elements easily
        block = block.to(tl.int64)
        slot = (kv_pos.to(tl.uint32) % KV_BLOCK).to(tl.int64)

        # [TILE_KV, TILE_DK]
        k_ptrs = keys.k_ptr + (block * keys.stride_k_block + slot * keys.stride_k_slot)[:, None] + offs_dk[None, :]
        k = tl.load(k_ptrs, mask=mask_kv[:, None] & (offs_dk < HEAD_DIM_K)[None, :], other=0.0)
        # [TILE_KV, TILE_DV]
        offs_v = block * keys.stride_v_block + slot * keys.stride_v_slot
        if keys.v_ptr.dtype.element_ty.primitive_bitwidth == 8:
            # loaded sideways and turned: the compiler would otherwise load 8 of these one-byte elements at a time
            v_ptrs = keys.v_ptr + offs_v[None, :] + offs_dv[:, None]
            v = tl.trans(tl.load(v_ptrs, mask=mask_kv[None, :] & (offs_dv < HEAD_DIM_V)[:, None], other=0.0))
        else:
            v_ptrs = keys.v_ptr + offs_v[:, None] + offs_dv[None, :]
            v = tl.load(v_ptrs, mask=mask_kv[:, None] & (offs_dv < HEAD_DIM_V)[None, :], other=0.0)

        # [TILE_Q, TILE_KV]
        s = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision="ieee")
        if SCALE_PER_TOKEN:
            offs_scale = block * keys.stride_scale_block + slot * keys.stride_scale_slot
            s = s * tl.load(keys.k_scale_ptr + offs_scale, mask=mask_kv, other=0.0)[None, :]
            # V takes its scales before the product: scaled probabilities would underflow in fp16
            v = v.to(tl.float32) * tl.load(keys.v_scale_ptr + offs_scale, mask=mask_kv, other=0.0)[:, None]
        if softcap is not None:
            s = capped(s * scale, softcap) * LOG2E
        else:
            s = s * (scale * LOG2E)
        if slopes is not None:
            s = s + (slopes * LOG2E)[:, None] * (kv_pos[None, :] - q_pos[:, None]).to(tl.float32)
        visible = mask_kv[None, :]
        if CAUSAL:
            visible = visible & (kv_pos[None, :] <= q_pos[:, None])
        if window is not None:
            visible = visible & (kv_pos[None, :] > q_pos[:, None] - window)
        s = tl.where(visible, s, float("-inf"))

        new_max = tl.maximum(row_max, tl.max(s, 1))
        safe_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        p = tl.exp2(s - safe_max[:, None])
        shrink = tl.exp2(row_max - safe_max)
        row_sum = row_sum * shrink + tl.sum(p, 1)
        row_max = new_max
        acc = tl.dot(p.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision="ieee")

    if keys.v_scale_ptr is not None and not SCALE_PER_TOKEN:
        acc = acc * tl.load(keys.v_scale_ptr)
    return acc, row_max, row_sum
