"""The shape of a decoder of the Llama family, read from the `config.json` beside its weights.

    Llama 2 and 3, SmolLM2   rotary embedding, grouped queries, SwiGLU, RMS norm
    Mistral                  and a sliding window
    Qwen2                    and a bias on q, k and v
    Qwen3                    and an RMS norm over each head of q and k

Knows nothing of tensors or of where weights lie.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.errors import ModelFileError, UnsupportedModel

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and switches. `windows[layer]`: keys a query sees in that layer, itself included; None for all."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_model_len: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] = field(default_factory=dict)
    """Empty, or `rope_type` and the parameters of it"""
    windows: tuple[int | None, ...] = ()
    tied_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.windows:
            object.__setattr__(self, "windows", (None,) * self.num_layers)

    @property
    def num_parameters(self) -> int:
        """Weights, an embedding that is tied to the head counted once."""
        from math import prod

        return sum(prod(shape) for shape in self.tensor_shapes().values())

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of a checkpoint by its published name."""
        hidden, inner, dim = self.hidden_size, self.intermediate_size, self.head_dim
        q, kv = self.num_heads * dim, self.num_kv_heads * dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for i in range(self.num_layers):
            at = f"model.layers.{i}."
            shapes[at + "input_layernorm.weight"] = (hidden,)
            for name, out, inp, bias in (
                ("self_attn.q_proj", q, hidden, self.qkv_bias),
                ("self_attn.k_proj", kv, hidden, self.qkv_bias),
                ("self_attn.v_proj", kv, hidden, self.qkv_bias),
                ("self_attn.o_proj", hidden, q, self.output_bias),
                ("mlp.gate_proj", inner, hidden, self.mlp_bias),
                ("mlp.up_proj", inner, hidden, self.mlp_bias),
                ("mlp.down_proj", hidden, inner, self.mlp_bias),
            ):
                shapes[f"{at}{name}.weight"] = (out, inp)
                if bias:
                    shapes[f"{at}{name}.bias"] = (out,)
            if self.qk_norm:
                shapes[at + "self_attn.q_norm.weight"] = shapes[at + "self_attn.k_norm.weight"] = (dim,)
            shapes[at + "post_attention_layernorm.weight"] = (hidden,)
        shapes["model.norm.weight"] = (hidden,)
        if not self.tied_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        return shapes


def read_config(folder: Path) -> ModelConfig:
    """The config of a model's folder. Raises ModelFileError for a file that is absent or no JSON object."""
    path = folder / "config.json"
    try:
        told = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ModelFileError(f"{path} is missing: give a folder with config.json and *.safetensors") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise ModelFileError(f"{path} is not JSON ({error}): fetch the file again") from None
    if not isinstance(told, dict):
        raise ModelFileError(f"{path} holds {type(told).__name__}, a config is an object")
    return parse_config(told, str(path))


def parse_config(told: Mapping[str, Any], where: str = "config.json") -> ModelConfig:
    """A config as transformers writes it (4.x and 5.x).

    Raises UnsupportedModel for another architecture, activation or rotary scaling, ModelFileError for a field that is
    missing or impossible; `where` is named in the message.
    """
    names = told.get("architectures") or []
    architecture = next((name for name in names if name in ARCHITECTURES), None)
    if architecture is None:
        got = ", ".join(map(str, names)) or f"no architectures (model_type {told.get('model_type')!r})"
        raise UnsupportedModel(f"{where}: {got} is not supported; supported are {', '.join(ARCHITECTURES)}")
    if told.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"{where}: hidden_act {told['hidden_act']!r} is not supported, only 'silu'")

    def size(name: str, default: Any = None) -> int:
        value = default if told.get(name) is None else told[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelFileError(f"{where}: {name} must be a positive integer, got {value!r}")
        return value

    hidden, heads, layers = size("hidden_size"), size("num_attention_heads"), size("num_hidden_layers")
    kv_heads, head_dim = size("num_key_value_heads", heads), size("head_dim", hidden // heads)
    if heads % kv_heads:
        raise ModelFileError(f"{where}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    if head_dim % 2:
        raise ModelFileError(f"{where}: head_dim {head_dim} must be even, rotary embedding turns pairs")
    theta, scaling = _rope(told, where)
    qwen2, llama = architecture == "Qwen2ForCausalLM", architecture == "LlamaForCausalLM"
    bias = bool(told.get("attention_bias", False))
    eos = told.get("eos_token_id")
    return ModelConfig(
        architecture=architecture,
        vocab_size=size("vocab_size"),
        hidden_size=hidden,
        intermediate_size=size("intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        max_model_len=size("max_position_embeddings"),
        norm_eps=float(told.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_scaling=scaling,
        windows=_windows(told, architecture, layers),
        tied_embeddings=bool(told.get("tie_word_embeddings", False)),
        qkv_bias=qwen2 or bias,
        output_bias=bias and not qwen2,
        mlp_bias=llama and bool(told.get("mlp_bias", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
    )


def _rope(told: Mapping[str, Any], where: str) -> tuple[float, Mapping[str, Any]]:
    """Base and scaling, from `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before)."""
    scaling = dict(told.get("rope_parameters") or told.get("rope_scaling") or {})
    theta = float(scaling.pop("rope_theta", told.get("rope_theta") or 10000.0))
    kind = scaling.pop("rope_type", scaling.pop("type", "default"))
    scaling.pop("type", None)
    turned = scaling.pop("partial_rotary_factor", told.get("partial_rotary_factor"))
    if kind not in ROPE_TYPES or turned not in (None, 1, 1.0):
        what = f"rope_type {kind!r}" if kind not in ROPE_TYPES else f"partial_rotary_factor {turned}"
        known = ", ".join(ROPE_TYPES)
        raise UnsupportedModel(f"{where}: {what} is not supported; supported are {known} on whole heads")
    if kind == "default":
        return theta, {}
    needed = ["factor"]
    if kind == "llama3":
        needed += ["low_freq_factor", "high_freq_factor", "original_max_position_embeddings"]
    missing = [name for name in needed if name not in scaling]
    if missing:
        raise ModelFileError(f"{where}: rope scaling {kind!r} lacks {', '.join(missing)}")
    return theta, {"rope_type": kind, **{name: scaling[name] for name in needed}}


def _windows(told: Mapping[str, Any], architecture: str, layers: int) -> tuple[int | None, ...]:
    window = told.get("sliding_window")
    if architecture == "LlamaForCausalLM" or window is None:
        return (None,) * layers
    if architecture == "MistralForCausalLM":
        return (int(window),) * layers
    if not told.get("use_sliding_window", False):
        return (None,) * layers
    first = int(told.get("max_window_layers", layers))
    kinds = told.get("layer_types") or ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds)
