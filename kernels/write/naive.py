"""Writing K and V into their slots, in plain torch: one token at a time.

    slot = block id × block_size + offset          a negative slot writes nothing, nor does one past the pool

Rotary embedding (Su et al. 2021) turns pairs (x1, x2) of the first `rotary_dim` dimensions by the angle of the
token's position, x1' = x1·cos − x2·sin, x2' = x2·cos + x1·sin. The pairs are (i, i + rotary_dim/2), or (2i, 2i+1)
with `interleaved`. Quantising divides by a scale, saturates, and rounds to nearest, ties to even;
a row with NaN or an infinity, given a scale of its own, reads back as nothing finite.

The only oracle of the write kernels. Knows nothing of tiles or of who chose the slots.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scatter(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> None:
    """Arguments as `kernels.write.scatter.scatter`."""
    num_blocks, block_size = k_cache.shape[:2]
    for t, slot in enumerate(slot_mapping.tolist()):
        if 0 <= slot < num_blocks * block_size:
            k_cache[slot // block_size, slot % block_size] = k[t]
            v_cache[slot // block_size, slot % block_size] = v[t]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool) -> Tensor:
    """`x [num_tokens, num_heads, head_dim]` turned by its tokens' positions, in fp32 and back to x's dtype."""
    half = cos.shape[1]
    rotary = x[..., : 2 * half].float()
    if interleaved:
        x1, x2 = rotary[..., 0::2], rotary[..., 1::2]
    else:
        x1, x2 = rotary[..., :half], rotary[..., half:]
    c, s = cos[positions.long()].float()[:, None], sin[positions.long()].float()[:, None]
    y1, y2 = x1 * c - x2 * s, x2 * c + x1 * s
    turned = torch.stack([y1, y2], -1).flatten(-2) if interleaved else torch.cat([y1, y2], -1)
    return torch.cat([turned.to(x.dtype), x[..., 2 * half :]], -1)


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
) -> Tensor:
    """Arguments as `kernels.write.rope_scatter.rope_scatter`. Returns the rotated q."""
    scatter(rotate(k, cos, sin, positions, interleaved), v, k_cache, v_cache, slot_mapping)
    return rotate(q, cos, sin, positions, interleaved)


TINY = 2.0**-100
"""A row no larger in magnitude is stored as zeros with a scale of 1: a scale of its own would underflow."""


def largest(dtype: torch.dtype) -> float:
    """The largest value a quantised dtype holds."""
    return 127.0 if dtype == torch.int8 else torch.finfo(dtype).max


def quantise(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """x / scale, saturated and rounded to `dtype`."""
    y = (x.float() / scale).clamp(-largest(dtype), largest(dtype))
    return torch.round(y).to(dtype) if dtype == torch.int8 else y.to(dtype)


def scatter_quantised(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, k_scale: Tensor, v_scale: Tensor, slot_mapping: Tensor
) -> None:
    """Arguments as `kernels.write.scatter_quantised.scatter_quantised`."""
    num_blocks, block_size = k_cache.shape[:2]
    for t, slot in enumerate(slot_mapping.tolist()):
        if not 0 <= slot < num_blocks * block_size:
            continue
        at = slot // block_size, slot % block_size
        for x, cache, scales in ((k[t], k_cache, k_scale), (v[t], v_cache, v_scale)):
            if scales.dim() == 1:
                cache[at] = quantise(x, scales, cache.dtype)
                continue
            peak = x.float().abs().amax(-1)
            scale = torch.where(peak <= TINY, 1.0, peak / largest(cache.dtype))
            scales[at] = scale
            cache[at] = quantise(x, scale[:, None], cache.dtype)
