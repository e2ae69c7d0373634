"""A kernel launch as a value: what would run, before it runs.

Every operation *plans* a `Launch` and then runs it. The ahead-of-time compiler takes the same object built from
meta tensors, so what is studied without a GPU is what is launched on one.

Knows nothing of any particular kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from triton.runtime.jit import JITFunction

# Contracting a*b+c into one rounding is Triton's default today. It is pinned here, so that an upgrade cannot change
# numbers silently. Invariant mode turns it off: two kernels then round alike whatever the compiler would contract.
FP_FUSION = True


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, its grid, all its arguments by name, and the options the compiler takes."""

    kernel: Any
    grid: tuple[int, ...]
    args: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 2
    fp_fusion: bool = FP_FUSION

    def run(self) -> None:
        """Launch on the current stream (or interpret). An empty grid does nothing."""
        if 0 in self.grid:
            return
        self.kernel[self.grid](
            **self.args, num_warps=self.num_warps, num_stages=self.num_stages, enable_fp_fusion=self.fp_fusion
        )


def interpreted(kernel: Any) -> bool:
    """Whether `kernel` runs in Triton's interpreter (TRITON_INTERPRET=1 when its module was imported)."""
    return not isinstance(kernel, JITFunction)


def refuse_bf16_interpreted(kernel: Any, name: str, tensor: torch.Tensor) -> None:
    """Raises ValueError for bf16 arithmetic in Triton's interpreter, which gets it wrong without a word."""
    if tensor.dtype == torch.bfloat16 and interpreted(kernel) and not tensor.is_meta:
        raise ValueError(
            f"{name} is bfloat16, whose products and roundings are silently wrong in Triton's interpreter: "
            "use float16 or float32 there, or run on a GPU with TRITON_INTERPRET unset"
        )


def next_power_of_2(n: int) -> int:
    """The smallest power of two ≥ n, and 1 for n ≤ 1."""
    return 1 << max(n - 1, 0).bit_length()


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
