"""Attention over pages by the Triton kernels: rotate and write in one launch, attend in one or two.

Knows nothing of what the kernels do inside; their contracts are in `kernels/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from kernels import tuning
from kernels.attention import split_kv
from kernels.write.rope_scatter import rope_scatter
from model.backend.base import Backend, KVPool, Step
from model.batch import Batch

NO_BLOCK = -1
"""A block id outside every pool: the kernels leave it out."""


class TritonBackend(Backend):
    """For GPUs; on a CPU only through Triton's interpreter, which is for tests."""

    def __init__(self, arch: str) -> None:
        """`arch`: whose tile sizes to take (`conf/kernel/<arch>.yaml`). Raises ValueError for an unknown one."""
        self.tuning = tuning.load(arch)

    def prepare(self, batch: Batch, pool: KVPool, rope: tuple[Tensor, Tensor], invariant: bool) -> Step:
        device = rope[0].device
        width = max(map(len, batch.block_tables))
        starts = batch.query_start_loc

        def ints(values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        return TritonStep(
            self.tuning, pool, rope, invariant,
            positions=ints(batch.positions),
            slot_mapping=torch.tensor(batch.slot_mapping, dtype=torch.int64, device=device),
            block_table=ints([[*t, *[NO_BLOCK] * (width - len(t))] for t in batch.block_tables]),
            query_start_loc=ints(starts),
            seq_lens=ints(batch.seq_lens),
            max_query_len=max(b - a for a, b in pairwise(starts)),
            max_seq_len=max(batch.seq_lens),
        )  # fmt: skip


class TritonStep(Step):
    """Metadata on the device. The tensors may be overwritten in place: a captured graph replays over them."""

    def __init__(
        self,
        tuning: tuning.Tuning,
        pool: KVPool,
        rope: tuple[Tensor, Tensor],
        invariant: bool,
        *,
        positions: Tensor,
        slot_mapping: Tensor,
        block_table: Tensor,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        max_query_len: int,
        max_seq_len: int,
    ) -> None:
        self.tuning, self.pool, self.rope, self.invariant = tuning, pool, rope, invariant
        self.positions, self.slot_mapping, self.block_table = positions, slot_mapping, block_table
        self.query_start_loc, self.seq_lens = query_start_loc, seq_lens
        self.max_query_len, self.max_seq_len = max_query_len, max_seq_len

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        k_cache, v_cache = self.pool.k[layer], self.pool.v[layer]
        cos, sin = self.rope
        q = rope_scatter(q, k, v, cos, sin, self.positions, k_cache, v_cache, self.slot_mapping)
        section = tuning.section_for(self.max_query_len, q.shape[1] // k.shape[1], self.invariant)
        config = self.tuning.attention(section, max(q.shape[2], v.shape[2]), q.element_size())
        out, _ = split_kv.attention(
            q, k_cache, v_cache, self.block_table, self.query_start_loc, self.seq_lens,
            self.max_query_len, self.max_seq_len, window=window, invariant=self.invariant, config=config,
        )  # fmt: skip
        return out.flatten(1)
