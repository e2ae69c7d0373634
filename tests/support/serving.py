"""Sequences served by hand: one pool, tables drawn at random, prompts in chunks, several at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cache.store import KVStore
from model.backend.base import Backend
from model.backend.sdpa import SdpaBackend
from model.batch import Batch
from model.decoder import Decoder
from model.runner import ModelRunner


@dataclass
class Served:
    """One sequence: its tokens, its blocks, how far it is computed."""

    tokens: list[int]
    table: list[int]
    computed: int = 0


class Server:
    """A runner over a poisoned pool."""

    def __init__(
        self,
        decoder: Decoder,
        num_blocks: int = 128,
        block_size: int = 16,
        invariant: bool = False,
        backend: Backend | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        config = decoder.config
        self.store = KVStore(
            num_blocks, block_size, config.num_layers, config.num_kv_heads, config.head_dim,
            dtype=decoder.dtype, device=device, poison=True,
        )  # fmt: skip
        self.runner = ModelRunner(decoder, self.store, backend or SdpaBackend(), invariant)
        self.free = list(range(num_blocks))
        random.Random(seed).shuffle(self.free)

    def sequence(self, tokens: Sequence[int], shared: Served | None = None, shared_blocks: int = 0) -> Served:
        """A sequence with blocks for its tokens and some more; its first blocks may be another's."""
        size = self.store.block_size
        table = shared.table[:shared_blocks] if shared else []
        while len(table) * size < len(tokens) + 160:
            table.append(self.free.pop())
        return Served(list(tokens), list(table), shared_blocks * size)

    def step(self, *parts: tuple[Served, int]) -> list[Tensor]:
        """Compute `count` more tokens of each sequence; returns the logits of all of them, `[count, vocab]` each."""
        new = [(seq.tokens[seq.computed : seq.computed + count], seq.computed, seq.table) for seq, count in parts]
        out = self.runner.run(Batch.of(new, self.store.block_size, every_logit=True))
        pieces = list(out.split([count for _, count in parts]))
        for seq, count in parts:
            seq.computed += count
        self.store.check_guard()
        return pieces

    def prefill(self, seq: Served, *chunks: int) -> Tensor:
        """Compute the rest of the sequence in chunks of these sizes (the last one takes what is left)."""
        out = [self.step((seq, n))[0] for n in chunks]
        if seq.computed < len(seq.tokens):
            out.append(self.step((seq, len(seq.tokens) - seq.computed))[0])
        return torch.cat(out)

    def kv(self, seq: Served, start: int, stop: int) -> Tensor:
        """K and V of its tokens as stored, all layers."""
        size = self.store.block_size
        slots = torch.tensor([seq.table[p // size] * size + p % size for p in range(start, stop)])
        return torch.stack([pool.flatten(0, 1)[slots] for pool in (*self.store.k, *self.store.v)])
