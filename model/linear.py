"""One matrix of weights, held in the layout in which the machine multiplies fastest.

On a CPU in fp32, oneDNN's blocked layout: a decode step reads the weights at memory speed on all threads (MKL's
matrix-vector product runs on one thread only) and a step of 8 tokens costs little more than one of 1. The plain
layout is not kept beside it; `dense` gives it back, bit for bit. Everywhere else, plain `[out, in]`.

Knows nothing of layers or of who shares the weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

ROWS_HINT = 1024
"""oneDNN chooses the layout for so many rows; a layout chosen for many is as fast for one, and not the reverse."""


class Linear:
    """`y = x Wᵀ + b` for `x [rows, in]`; the weight is `[out, in]`."""

    __slots__ = ("_packed", "_weight", "bias", "shape")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Takes the weight over: keep no reference to it, or it lies in memory twice."""
        self.shape = (weight.shape[0], weight.shape[1])
        self.bias = bias
        self.set_weight(weight)

    def set_weight(self, weight: Tensor) -> None:
        """Replace the weight by another of the same shape."""
        if tuple(weight.shape) != self.shape:
            raise ValueError(f"weight must have shape {list(self.shape)}, got {list(weight.shape)}")
        self._packed = packed(weight)
        self._weight = None if self._packed is not None else weight

    @property
    def dense(self) -> Tensor:
        """The weight as `[out, in]`."""
        return self._weight if self._weight is not None else self._packed.to_dense()

    def __call__(self, x: Tensor) -> Tensor:
        """`[rows, in]` → `[rows, out]`."""
        if self._packed is None:
            return functional.linear(x, self._weight, self.bias)  # type: ignore[arg-type]  # one of the two is there
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return out


def packed(weight: Tensor) -> Any:
    """The weight in oneDNN's layout, or None where this machine, dtype or torch has none."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch._C._has_mkldnn:
        return None
    try:
        return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_HINT)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
