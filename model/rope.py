"""Rotary position embedding (Su et al. 2021): angles as tables, and the turn itself in plain torch.

    angle(p, i) = p · f_i        f_i = theta^(−2i/d),  i = 0 … d/2 − 1

`linear` scaling divides every frequency by `factor`. `llama3` (Llama 3.1 model card) leaves short wavelengths alone,
divides long ones by `factor`, and blends between: with L the original context and w = 2π/f,

    s = (L/w − low) / (high − low), clipped to [0, 1]        f' = (1 − s) · f/factor + s · f

Pairs are (i, i + d/2), as in Hugging Face's layout of the weights.

Knows nothing of caches or of which tokens are turned.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model.config import ModelConfig


def frequencies(config: ModelConfig) -> Tensor:
    """`[head_dim / 2]` in fp32, scaled as the config says."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    freqs = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if not scaling:
        return freqs
    factor = float(scaling["factor"])
    if scaling["rope_type"] == "linear":
        return freqs / factor
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) / (2 * math.pi / freqs)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * freqs / factor + smooth * freqs


def rope_tables(config: ModelConfig, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """cos and sin, each `[max_model_len, head_dim / 2]` fp32 and contiguous, indexed by position."""
    angles = torch.outer(torch.arange(config.max_model_len).float(), frequencies(config))
    return angles.cos().to(device), angles.sin().to(device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x [num_tokens, heads, head_dim]` turned by `cos`, `sin [num_tokens, 1, head_dim / 2]`, in fp32.

    Products and sums are rounded one by one, so a token's bits do not depend on its neighbours.
    """
    x1, x2 = x.float().chunk(2, -1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1).to(x.dtype)
