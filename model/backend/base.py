"""What a backend does: rotate new q and k, write k and v into their slots, attend over the pages.

A backend turns a batch into tensors once per step (`prepare`); the step then serves every layer.

Knows nothing of weights or of how many layers there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from model.batch import Batch


class KVPool(Protocol):
    """The KV tensors, one per layer, each `[num_blocks, block_size, num_kv_heads, head_dim]`."""

    @property
    def k(self) -> Sequence[Tensor]:
        """Keys of every layer, rotated."""

    @property
    def v(self) -> Sequence[Tensor]:
        """Values of every layer."""


class Step(ABC):
    """The metadata of one step, as tensors."""

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        """Write the step's k and v, then attend. `q`, `k [rows, heads, head_dim]` come unrotated.

        `window`: keys a query sees, itself included. Returns `[rows, num_heads · head_dim]`.
        """


class Backend(ABC):
    """Makes steps."""

    @abstractmethod
    def prepare(self, batch: Batch, pool: KVPool, rope: tuple[Tensor, Tensor], invariant: bool) -> Step:
        """Tensors for one step over `pool`. `rope`: cos and sin, `[max_positions, head_dim / 2]`.

        `invariant`: a token's result depends, bit for bit, on its own keys alone.
        """
