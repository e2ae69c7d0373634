"""How row-wise work is cut: all rows at once, or in tiles of one fixed shape.

A matrix product rounds differently for another number of rows, so a token's bits would depend on who else is in its
step. In tiles of one shape, padded with zeros, a row is always computed by the same code on the same shape, and each
row of a product depends on that row alone (tested on the BLAS at hand; the promise is for a fixed number of threads).

    step of 21 rows, tiles of 16      | rows 0 … 15 | rows 16 … 20, 0 … 0 |

Knows nothing of what is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

RowWise = Callable[..., Tensor]
"""Tensors with the same first dimension in, one such tensor out; row r of it depends on rows r alone."""


class Rows(ABC):
    """A way to apply row-wise functions."""

    @staticmethod
    @abstractmethod
    def silu(x: Tensor) -> Tensor:
        """x / (1 + exp(−x))."""

    @abstractmethod
    def __call__(self, function: RowWise, *inputs: Tensor) -> Tensor:
        """`function(*inputs)`, in whatever pieces."""


class AllRows(Rows):
    """Fast mode: one call."""

    @staticmethod
    def silu(x: Tensor) -> Tensor:
        return functional.silu(x)

    def __call__(self, function: RowWise, *inputs: Tensor) -> Tensor:
        return function(*inputs)


class RowTiles(Rows):
    """Invariant mode: one call per tile of `size` rows, the last one padded."""

    def __init__(self, size: int) -> None:
        """A multiple of 16 keeps vector loops free of remainders, whatever the width of a row."""
        if size < 16 or size % 16:
            raise ValueError(f"a row tile must be a positive multiple of 16, got {size}")
        self.size = size

    @staticmethod
    def silu(x: Tensor) -> Tensor:
        # torch's own takes another exponential in the remainder of a vector loop than in the loop
        return x / (1 + torch.exp(-x))

    def __call__(self, function: RowWise, *inputs: Tensor) -> Tensor:
        rows = inputs[0].shape[0]
        pieces = [function(*(self._tile(x, start) for x in inputs)) for start in range(0, rows, self.size)]
        out = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        return out[:rows]

    def _tile(self, x: Tensor, start: int) -> Tensor:
        part = x[start : start + self.size]
        if part.shape[0] == self.size:
            return part.contiguous()
        tile = x.new_zeros(self.size, *x.shape[1:])
        tile[: part.shape[0]] = part
        return tile
