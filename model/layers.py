"""One decoder layer, in two row-wise halves around attention.

    rows ── before ──> q, k, v ──> attention ──> after ──> rows
            norm, qkv (one product), per-head norm     output, residual, norm, gate and up (one product), down, residual

Knows nothing of positions, caches or sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from model.linear import Linear


@dataclass(slots=True)
class Layer:
    """The weights of one layer. Products that read the same input are one matrix: q, k and v; gate and up."""

    input_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    inner_norm: Tensor
    gate_up: Linear
    down: Linear
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float

    def before(self, x: Tensor) -> Tensor:
        """`[rows, hidden]` → q, k and v side by side `[rows, heads + 2 · kv_heads, head_dim]`, not yet rotated."""
        qkv = self.qkv(rms_norm(x, self.input_norm, self.norm_eps)).view(x.shape[0], -1, self.head_dim)
        if self.q_norm is None or self.k_norm is None:
            return qkv
        q, k, v = self.split(qkv)
        q, k = rms_norm(q, self.q_norm, self.norm_eps), rms_norm(k, self.k_norm, self.norm_eps)
        return torch.cat((q, k, v), 1)

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q `[rows, heads, head_dim]`, k and v `[rows, kv_heads, head_dim]`: views."""
        first = self.num_heads + self.num_kv_heads
        return qkv[:, : self.num_heads], qkv[:, self.num_heads : first], qkv[:, first:]

    def after(self, attended: Tensor, x: Tensor, silu: Callable[[Tensor], Tensor] = functional.silu) -> Tensor:
        """What attention found, `[rows, heads · head_dim]`, and the layer's input → the layer's output."""
        x = self.output(attended).add_(x)
        gate, up = self.gate_up(rms_norm(x, self.inner_norm, self.norm_eps)).chunk(2, -1)
        return self.down(silu(gate).mul_(up)).add_(x)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, in fp32 (Zhang and Sennrich 2019)."""
    if x.dtype == torch.float32:
        return functional.rms_norm(x, (x.shape[-1],), weight, eps)
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)
