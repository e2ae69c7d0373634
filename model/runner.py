"""From a step in integers to logits: the one class an engine calls.

`Runner` is what a scheduler may rely on; `ModelRunner` computes, over KV tensors it is given.

Knows nothing of requests, or of who decided which block belongs to whom.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from model.backend.base import Backend, KVPool
from model.batch import Batch
from model.cuda_graph import DecodeGraphs
from model.decoder import Decoder
from model.rows import AllRows, RowTiles

ROW_TILE = 16
"""Rows per tile in invariant mode: a decode step pays for all of them. Another number gives other bits."""


class Runner(Protocol):
    """What an engine needs of a model."""

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 … vocab_size − 1."""

    @property
    def max_model_len(self) -> int:
        """Tokens a sequence may have."""

    def run(self, batch: Batch) -> Tensor:
        """Compute one step; returns logits `[len(batch.logit_rows), vocab_size]`, fp32."""


class ModelRunner:
    """A decoder over a KV pool through a backend."""

    def __init__(
        self,
        decoder: Decoder,
        pool: KVPool,
        backend: Backend,
        invariant: bool = False,
        graph_batch_sizes: Sequence[int] = (),
    ) -> None:
        """`invariant`: a token's K, V and logits depend, bit for bit, on its own prefix alone.

        `graph_batch_sizes`: decode steps of up to so many sequences run as CUDA graphs, captured on first use (CUDA
        and the Triton backend only). Raises ValueError where the pool does not fit the model.
        """
        self.decoder, self.pool, self.backend, self.invariant = decoder, pool, backend, invariant
        self.rows = RowTiles(ROW_TILE) if invariant else AllRows()
        self._rope = (decoder.cos, decoder.sin)
        _check_pool(decoder, pool)
        self._graphs = (
            DecodeGraphs(decoder, pool, backend, self.rows, invariant, graph_batch_sizes) if graph_batch_sizes else None
        )

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 … vocab_size − 1."""
        return self.decoder.config.vocab_size

    @property
    def max_model_len(self) -> int:
        """Positions the model was made for."""
        return self.decoder.config.max_model_len

    @property
    def block_size(self) -> int:
        """Tokens per block of the pool."""
        return self.pool.k[0].shape[1]

    @torch.inference_mode()
    def run(self, batch: Batch) -> Tensor:
        """One step: write K and V of its tokens, return logits `[len(batch.logit_rows), vocab_size]`, fp32.

        Raises ValueError, before anything is written, for a batch that contradicts itself, the model or the pool.
        """
        batch.check(self.vocab_size, self.max_model_len, self.block_size, self.pool.k[0].shape[0])
        if not batch.token_ids:
            return torch.empty(0, self.vocab_size, device=self.decoder.device)
        if self._graphs is not None and self._graphs.serves(batch):
            return self._graphs.run(batch)
        step = self.backend.prepare(batch, self.pool, self._rope, self.invariant)
        windows = self.decoder.config.windows
        token_ids = torch.tensor(batch.token_ids, device=self.decoder.device)
        x = self.decoder.forward(token_ids, lambda i, q, k, v: step.attend(i, q, k, v, windows[i]), self.rows)
        wanted = batch.logit_rows
        if len(wanted) == 0:
            return torch.empty(0, self.vocab_size, device=x.device)
        if list(wanted) != list(range(x.shape[0])):
            x = x[torch.tensor(wanted, device=x.device)]
        return self.decoder.logits(x, self.rows)


def _check_pool(decoder: Decoder, pool: KVPool) -> None:
    config = decoder.config
    if len(pool.k) != config.num_layers or len(pool.v) != config.num_layers:
        raise ValueError(f"the KV pool has {len(pool.k)} layers, the model {config.num_layers}")
    for i, cache in enumerate((*pool.k, *pool.v)):
        want = (config.num_kv_heads, config.head_dim)
        if tuple(cache.shape[2:]) != want or cache.dtype != decoder.dtype or cache.device != decoder.device:
            raise ValueError(
                f"KV tensor {i} holds {list(cache.shape[2:])} {cache.dtype} on {cache.device} per slot; "
                f"the model writes {list(want)} {decoder.dtype} on {decoder.device}"
            )
