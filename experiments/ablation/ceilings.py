"""What the device at hand can do at most, measured in the same run as whatever is compared with it.

    copy        a device copy of a buffer far larger than the L2, bytes read and written together
    product     a square matrix product of random numbers through torch, 2·n³ operations

Knows nothing of data sheets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from experiments.ablation.timing import Timer
from kernels.shipped import DTYPES


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Bytes and floating-point operations per second."""

    copy: float
    product: float
    dtype: str

    def row(self) -> dict[str, Any]:
        """As columns of the table."""
        return {"copy_gb_per_s": self.copy / 1e9, "product_tflop_per_s": self.product / 1e12}

    def floor_seconds(self, work_bytes: int, work_flops: int) -> tuple[float, str]:
        """The least time such work can take here, and what limits it: "bytes" or "flops"."""
        by_bytes, by_flops = work_bytes / self.copy, work_flops / self.product
        return max(by_bytes, by_flops), "bytes" if by_bytes >= by_flops else "flops"


def measure_ceilings(
    device: torch.device, timer: Timer, dtype: str = "bf16", copy_bytes: int = 2 << 30, size: int = 8192
) -> Ceilings:
    """`copy_bytes` of one buffer; `size`: rows of the square matrices."""
    return Ceilings(copy_rate(device, timer, copy_bytes), product_rate(device, timer, dtype, size), dtype)


def copy_rate(device: torch.device, timer: Timer, copy_bytes: int) -> float:
    """Bytes per second, read and written; the better of two medians, as a ceiling should be."""
    source = torch.empty(copy_bytes // 4, dtype=torch.int32, device=device).random_()
    copied = torch.empty_like(source)
    return 2 * copied.nbytes / min(timer.measure(lambda: copied.copy_(source)).p50 for _ in range(2))


def product_rate(device: torch.device, timer: Timer, dtype: str, size: int) -> float:
    """Operations per second; the better of two medians. Random numbers: zeros would run faster than any real data."""
    a, b = (torch.randn(size, size, device=device).to(DTYPES[dtype]) for _ in range(2))
    out = torch.empty_like(a)
    return 2 * size**3 / min(timer.measure(lambda: torch.mm(a, b, out=out)).p50 for _ in range(2))
