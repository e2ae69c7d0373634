"""How long a step takes on a named GPU: a roofline over its matrix products, its attention and what moves.

    matrix products   max(2 · weights · rows / FLOP/s, bytes of weights / bandwidth)
    attention         max(4 · heads · head_dim · layers · pairs / FLOP/s, bytes of K and V read and written / bandwidth)
    communication     two all-reduces per layer under tensor parallelism, each on a ring
    moves             block copies at memory bandwidth, swaps at that of the host link
    overhead          a constant per step and one per kernel

Each part takes the longer of computing and reading; parts follow each other. The model is the one of Williams,
Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 2009. Peaks are the makers'; the shares
of them that kernels reach are assumptions, named as such in the yaml.

Knows nothing of requests; a step comes as sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.step import Work


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. FLOP/s are dense (no sparsity) in the model's dtype; bytes are decimal."""

    name: str
    flops: float
    bandwidth: float
    """Bytes/s of its memory."""
    memory: float
    """Bytes."""
    link_bandwidth: float
    """Bytes/s to the other GPUs, one direction."""
    host_bandwidth: float
    """Bytes/s to the host, one direction."""
    gemm_share: float = 0.7
    """Of peak FLOP/s reached by matrix products."""
    attention_share: float = 0.5
    """Of peak FLOP/s reached by attention."""
    bandwidth_share: float = 0.8
    """Of peak bandwidth reached by anything that reads memory."""
    kernel_seconds: float = 2e-6
    """Between two kernels of a captured graph."""
    step_seconds: float = 2e-4
    """Scheduling, launch and sampling of one step."""
    hop_seconds: float = 1e-5
    """Latency of one all-reduce."""

    def __post_init__(self) -> None:
        for name in ("flops", "bandwidth", "memory", "link_bandwidth", "host_bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"gpu.{name} must be more than 0, got {getattr(self, name)}")
        for name in ("gemm_share", "attention_share", "bandwidth_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"gpu.{name} is a share of a peak and lies in (0, 1], got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder of the Llama family, as large as its config.json says, split over `num_gpus`."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    tied_embeddings: bool = False
    bytes_per_weight: float = 2.0
    bytes_per_kv: float = 2.0
    num_gpus: int = 1
    kernels_per_layer: int = 8

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_heads", "num_kv_heads", "head_dim", "vocab_size", "max_model_len", "num_gpus"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.shape.{name} must be 1 or more, got {getattr(self, name)}")

    @property
    def layer_weights(self) -> int:
        """Parameters in the matrix products of all layers."""
        query, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        attention = self.hidden_size * (2 * query + 2 * kv)
        return self.num_layers * (attention + 3 * self.hidden_size * self.intermediate_size)

    @property
    def head_weights(self) -> int:
        """Parameters in the product that makes logits."""
        return self.hidden_size * self.vocab_size

    @property
    def num_weights(self) -> int:
        """All parameters, norms left out."""
        return self.layer_weights + self.head_weights * (1 if self.tied_embeddings else 2)

    @property
    def kv_bytes_per_token(self) -> float:
        """K and V of one token in all layers, on all GPUs together."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.bytes_per_kv


class Roofline:
    """Seconds of a step of one model on one kind of GPU."""

    def __init__(self, gpu: Gpu, model: ModelShape, block_size: int) -> None:
        """Each GPU holds 1/num_gpus of weights, heads, K and V."""
        self.gpu = gpu
        self.model = model
        self.block_size = block_size
        n, bandwidth = model.num_gpus, gpu.bandwidth * gpu.bandwidth_share
        gemm, attention = gpu.flops * gpu.gemm_share, gpu.flops * gpu.attention_share
        self._per_row = 2 * model.layer_weights / n / gemm
        self._per_logit = 2 * model.head_weights / n / gemm
        self._weights = (model.layer_weights + model.head_weights) * model.bytes_per_weight / n / bandwidth
        self._per_pair = 4 * model.num_layers * model.num_heads * model.head_dim / n / attention
        self._per_context = model.kv_bytes_per_token / n / bandwidth
        self._per_copy = 2 * model.kv_bytes_per_token * block_size / n / bandwidth
        self._per_swap = model.kv_bytes_per_token * block_size / n / gpu.host_bandwidth
        self._fixed = gpu.step_seconds + model.num_layers * model.kernels_per_layer * gpu.kernel_seconds
        self._reduced_per_row = 0.0
        if n > 1:
            reduced = 2 * model.num_layers * model.hidden_size * model.bytes_per_weight
            self._reduced_per_row = reduced * 2 * (n - 1) / n / gpu.link_bandwidth
            self._fixed += 2 * model.num_layers * gpu.hop_seconds

    def seconds(self, work: Work) -> float:
        """Time of one step."""
        rows = work.num_tokens
        products = max(self._per_row * rows + self._per_logit * work.num_logits, self._weights)
        attention = max(self._per_pair * work.pairs, self._per_context * (work.context + rows))
        moves = self._per_copy * work.copied_blocks + self._per_swap * work.swapped_blocks
        return self._fixed + products + attention + self._reduced_per_row * rows + moves

    def num_blocks(self, memory_share: float = 0.9) -> int:
        """Blocks that fit beside the weights. Raises ValueError where the weights alone do not fit.

        `memory_share`: what is left after activations, the CUDA context and fragmentation.
        """
        weights = self.model.num_weights * self.model.bytes_per_weight
        room = self.gpu.memory * self.model.num_gpus * memory_share
        blocks = int((room - weights) // (self.model.kv_bytes_per_token * self.block_size))
        if blocks < 1:
            raise ValueError(
                f"{self.model.name} has {weights / 1e9:.1f} GB of weights; {self.model.num_gpus} × {self.gpu.name} "
                f"leave {room / 1e9:.1f} GB for weights, K and V"
            )
        return blocks
