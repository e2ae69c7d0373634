"""New tokens and their slots: what every write launcher checks, and what its kernel asks for.

    slot = block · KV_BLOCK + offset        a negative slot, or one past the pool, writes nothing

Knows nothing of what is done to K and V on the way.
"""

# Triton reads the signatures of kernels itself and gives its decorator no types, so mypy is told to expect neither.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kernels.arguments import Facts, strided
from kernels.checks import FLOATS, check_cache, check_slots, check_tensor, check_unit_stride, check_vector, require
from kernels.launch import next_power_of_2

TILE_TOKENS = 16


def write_facts(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_mapping: Tensor) -> Facts:
    """What write kernels ask for, by name."""
    return {
        **strided("k", k, "token", "head"),
        **strided("v", v, "token", "head"),
        **strided("k_cache", k_cache, "block", "slot", "head"),
        **strided("v_cache", v_cache, "block", "slot", "head"),
        "slot_mapping_ptr": slot_mapping,
        "num_tokens": slot_mapping.shape[0],
        "num_blocks": k_cache.shape[0],
        "HEAD_DIM_K": k.shape[2],
        "HEAD_DIM_V": v.shape[2],
        "KV_BLOCK": k_cache.shape[1],
        "TILE_TOKENS": TILE_TOKENS,
        "TILE_DK": next_power_of_2(k.shape[2]),
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


@triton.jit
def split_slot(slot_mapping_ptr, offs_token, num_tokens, num_blocks, KV_BLOCK: tl.constexpr):
    """Block and offset of each token's slot (int64), and which tokens have one inside the pool."""
    slot = tl.load(slot_mapping_ptr + offs_token, mask=offs_token < num_tokens, other=-1).to(tl.int64)
    mask = (slot >= 0) & (slot // KV_BLOCK < num_blocks)
    slot = tl.where(mask, slot, 0)
    return slot // KV_BLOCK, slot % KV_BLOCK, mask
