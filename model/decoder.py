"""A decoder of the Llama family: embedding, layers, norm, head. Attention is handed in.

Built from named tensors, wherever they come from: a checkpoint, a seed, another implementation's state.

Knows nothing of files, paging or batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from model.config import ModelConfig
from model.layers import Layer, rms_norm
from model.linear import Linear
from model.rope import rope_tables
from model.rows import AllRows, Rows

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q, k, v), not yet rotated, → `[rows, num_heads · head_dim]`."""


class Decoder:
    """Token ids in, logits out. Rows are tokens, whosever they are."""

    def __init__(self, config: ModelConfig, tensor: Callable[[str], Tensor], weights_version: str = "") -> None:
        """`tensor(name)`: the weights by their published names, of the shapes `config.tensor_shapes()` lists.

        `weights_version`: names the content of the weights; part of every cache key.
        """
        self.config = config
        self.weights_version = weights_version
        self.embedding = tensor("model.embed_tokens.weight")
        self.layers = [_layer(config, f"model.layers.{i}.", tensor) for i in range(config.num_layers)]
        self.norm = tensor("model.norm.weight")
        # A tied head has a copy of its own: rows are looked up in one layout and multiplied in another.
        self.head = Linear(self.embedding if config.tied_embeddings else tensor("lm_head.weight"))
        self.cos, self.sin = rope_tables(config, self.embedding.device)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """In which numbers it computes; logits are fp32."""
        return self.embedding.dtype

    def matrices(self) -> dict[str, tuple[Linear, int, int]]:
        """Every projection by its published name, as (fused matrix, first row, last row + 1)."""
        config, found = self.config, {}
        q, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        inner = config.intermediate_size
        for i, layer in enumerate(self.layers):
            at = f"model.layers.{i}."
            for name, linear, start, stop in (
                ("self_attn.q_proj", layer.qkv, 0, q),
                ("self_attn.k_proj", layer.qkv, q, q + kv),
                ("self_attn.v_proj", layer.qkv, q + kv, q + 2 * kv),
                ("self_attn.o_proj", layer.output, 0, config.hidden_size),
                ("mlp.gate_proj", layer.gate_up, 0, inner),
                ("mlp.up_proj", layer.gate_up, inner, 2 * inner),
                ("mlp.down_proj", layer.down, 0, config.hidden_size),
            ):
                found[at + name] = (linear, start, stop)
        return found

    def forward(self, token_ids: Tensor, attend: Attend, rows: Rows | None = None) -> Tensor:
        """`token_ids [rows]` → the last layer's output `[rows, hidden]`."""
        rows = rows or AllRows()
        x = self.embedding[token_ids]
        for i, layer in enumerate(self.layers):
            q, k, v = layer.split(rows(layer.before, x))
            x = rows(partial(layer.after, silu=rows.silu), attend(i, q, k, v), x)
        return x

    def logits(self, x: Tensor, rows: Rows | None = None) -> Tensor:
        """`[rows, hidden]` → `[rows, vocab_size]` in fp32."""
        return (rows or AllRows())(self._head, x)

    def _head(self, x: Tensor) -> Tensor:
        return self.head(rms_norm(x, self.norm, self.config.norm_eps)).float()


def _layer(config: ModelConfig, at: str, tensor: Callable[[str], Tensor]) -> Layer:
    def fused(*names: str, bias: bool) -> Linear:
        weight = torch.cat([tensor(f"{at}{name}.weight") for name in names])
        return Linear(weight, torch.cat([tensor(f"{at}{name}.bias") for name in names]) if bias else None)

    return Layer(
        input_norm=tensor(at + "input_layernorm.weight"),
        qkv=fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", bias=config.qkv_bias),
        q_norm=tensor(at + "self_attn.q_norm.weight") if config.qk_norm else None,
        k_norm=tensor(at + "self_attn.k_norm.weight") if config.qk_norm else None,
        output=fused("self_attn.o_proj", bias=config.output_bias),
        inner_norm=tensor(at + "post_attention_layernorm.weight"),
        gate_up=fused("mlp.gate_proj", "mlp.up_proj", bias=config.mlp_bias),
        down=fused("mlp.down_proj", bias=config.mlp_bias),
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        norm_eps=config.norm_eps,
    )
