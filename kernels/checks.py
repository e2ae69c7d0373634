"""What a launcher demands of its arguments, said once. Every failure is a ValueError that names the argument.

Shape, dtype and stride checks read no tensor memory and always run. Range checks copy metadata to the host (on a
GPU: a synchronisation) and run only where the caller asks for `validate=True`.

Knows nothing of which operation asks.
"""

from __future__ import annotations

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
INTS = (torch.int32, torch.int64)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
QUANTISED = (*FP8, torch.int8)


def require(condition: bool, name: str, what: str) -> None:
    """Raises ValueError naming the argument unless `condition` holds."""
    if not condition:
        raise ValueError(f"{name} {what}")


def check_tensor(
    name: str, tensor: Tensor, shape: tuple[int | None, ...], dtypes: tuple[torch.dtype, ...], device: torch.device
) -> None:
    """`shape`: one size per dimension, None where any will do. Raises ValueError on shape, dtype or device."""
    # told apart before any message is put together: a launch is on the host's critical path
    if len(shape) != tensor.dim() or any(s is not None and s != t for s, t in zip(shape, tensor.shape, strict=True)):
        wanted = ", ".join("any" if s is None else str(s) for s in shape)
        raise ValueError(f"{name} must have shape [{wanted}], got {list(tensor.shape)}")
    if tensor.dtype not in dtypes:
        allowed = ", ".join(str(d).removeprefix("torch.") for d in dtypes)
        raise ValueError(f"{name} must be {allowed}, got {str(tensor.dtype).removeprefix('torch.')}")
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, the others are on {device}")


def check_unit_stride(name: str, tensor: Tensor) -> None:
    """Raises ValueError unless the last dimension is contiguous (16-byte loads need it)."""
    require(
        tensor.shape[-1] <= 1 or tensor.stride(-1) == 1,
        name,
        f"must have stride 1 in its last dimension, got strides {tensor.stride()}",
    )


def check_vector(name: str, tensor: Tensor, length: int | None, device: torch.device) -> None:
    """A contiguous integer vector, as all metadata are."""
    check_tensor(name, tensor, (length,), INTS, device)
    require(tensor.is_contiguous(), name, f"must be contiguous, got stride {tensor.stride()}")


def check_cache(k_cache: Tensor, v_cache: Tensor, device: torch.device) -> None:
    """K and V pools `[num_blocks, block_size, num_kv_heads, head_dim]`: any strides but the last, own head dims."""
    dtypes = (*FLOATS, *QUANTISED)
    check_tensor("k_cache", k_cache, (None, None, None, None), dtypes, device)
    check_tensor("v_cache", v_cache, (*k_cache.shape[:3], None), (k_cache.dtype,), device)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        check_unit_stride(name, cache)
        if 0 in cache.shape[1:]:
            raise ValueError(
                f"{name} must have a block size, heads and a head dim of at least 1, got {list(cache.shape)}"
            )


def check_slots(slot_mapping: Tensor, num_slots: int) -> None:
    """Raises ValueError where a slot is past the pool or written twice. Negative slots are fine: they write nothing."""
    slots = slot_mapping[slot_mapping >= 0].long().cpu()
    require(not slots.numel() or int(slots.max()) < num_slots, "slot_mapping", f"names a slot past {num_slots - 1}")
    require(len(set(slots.tolist())) == slots.numel(), "slot_mapping", "names one slot for two tokens")
