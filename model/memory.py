"""Whether weights fit before any are read: a machine that swaps or kills says nothing of why.

Knows nothing of models.
"""

from __future__ import annotations

from pathlib import Path

import torch

from model.errors import NotEnoughMemory


def available_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def require_memory(what: str, need: int, device: torch.device) -> None:
    """Raises NotEnoughMemory where `need` bytes are more than there are."""
    left = available_memory(device)
    if left is not None and need > left:
        raise NotEnoughMemory(
            f"{what} needs {need / 2**30:.1f} GiB on {device}, {left / 2**30:.1f} GiB are available: "
            f"take a smaller model or a narrower dtype (dtype=bfloat16 on a GPU)"
        )
