"""Configs of tiny models, one of every family, odd where that may hurt."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 10000.0},
    "llama-tied-biased": SIZES
    | {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True,
        "attention_bias": True, "mlp_bias": True, "rope_theta": 10000.0, "intermediate_size": 37,
    },
    "llama3-scaled": SIZES
    | {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "mistral": SIZES
    | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 24, "rope_theta": 10000.0},
    "qwen2": SIZES
    | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rope_theta": 1000000.0},
    "qwen3": SIZES
    | {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True, "head_dim": 32,
        "rope_theta": 1000000.0,
    },
}  # fmt: skip
