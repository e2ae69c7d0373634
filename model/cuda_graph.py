"""Decode steps as CUDA graphs: one capture per bucket of batch sizes, replayed over the same memory.

A decode step launches some ten kernels a layer, each shorter than its launch; a graph launches all at once. A graph
is fixed in its shapes and addresses, so a step is copied into static tensors and padded to its bucket:

    | sequences 0 … n−1 | padding: token 0, position 0, slot −1 (writes nothing), length 1, no block (attends to none) |

The launch geometry (the number of splits) is that of `max_model_len`, whatever a step's lengths are.

Knows nothing of the backend's kernels. Not tested: no GPU was at hand when this was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from model.backend.base import Backend, KVPool
from model.backend.triton import NO_BLOCK, TritonBackend, TritonStep
from model.batch import Batch
from model.decoder import Decoder
from model.rows import Rows

WARM_UPS = 2
"""Runs before a capture: Triton compiles and cuBLAS takes its workspace outside the graph."""


def bucket_for(num_seqs: int, sizes: Sequence[int]) -> int | None:
    """The smallest of `sizes` that holds so many sequences; None where none does."""
    return min((size for size in sizes if size >= num_seqs), default=None)


def pad_decode(batch: Batch, size: int, width: int) -> Batch:
    """A decode batch as one of `size` sequences and tables `width` blocks wide; the added ones touch nothing."""
    more = size - batch.num_seqs
    if more < 0:
        raise ValueError(f"{batch.num_seqs} sequences do not fit a bucket of {size}")
    return Batch(
        token_ids=[*batch.token_ids, *[0] * more],
        positions=[*batch.positions, *[0] * more],
        slot_mapping=[*batch.slot_mapping, *[-1] * more],
        query_start_loc=range(size + 1),
        seq_lens=[*batch.seq_lens, *[1] * more],
        block_tables=[
            *([*table[:width], *[NO_BLOCK] * (width - len(table))] for table in batch.block_tables),
            *[[NO_BLOCK] * width] * more,
        ],
        logit_rows=range(size),
    )


class DecodeGraphs:
    """The graphs of one decoder over one pool."""

    def __init__(
        self, decoder: Decoder, pool: KVPool, backend: Backend, rows: Rows, invariant: bool, sizes: Sequence[int]
    ) -> None:
        """`sizes`: the buckets. Raises ValueError without CUDA or with another backend than Triton's."""
        if decoder.device.type != "cuda" or not isinstance(backend, TritonBackend):
            raise ValueError("graph_batch_sizes needs a model on CUDA and the triton backend")
        self._decoder, self._pool, self._backend, self._rows = decoder, pool, backend, rows
        self._invariant, self._sizes = invariant, sorted(sizes)
        self._graphs: dict[int, _Graph] = {}

    def serves(self, batch: Batch) -> bool:
        """Whether the batch is all decode, asks for every row, and fits a bucket."""
        decode = batch.num_tokens == batch.num_seqs == len(batch.logit_rows)
        return decode and bucket_for(batch.num_seqs, self._sizes) is not None

    def run(self, batch: Batch) -> Tensor:
        """Logits `[num_seqs, vocab_size]`, a copy that the next step leaves alone."""
        size = bucket_for(batch.num_seqs, self._sizes)
        assert size is not None
        if size not in self._graphs:
            self._graphs[size] = self._capture(size)
        order = torch.tensor(batch.logit_rows, device=self._decoder.device)
        return self._graphs[size].run(batch)[order]

    def _capture(self, size: int) -> _Graph:
        decoder, longest = self._decoder, self._decoder.config.max_model_len
        width = -(-longest // self._pool.k[0].shape[1])
        nothing = pad_decode(Batch([], [], [], [0], [], [], []), size, width)
        step = self._backend.prepare(nothing, self._pool, (decoder.cos, decoder.sin), self._invariant)
        assert isinstance(step, TritonStep)
        step.max_seq_len = longest
        return _Graph(decoder, self._rows, step, size, width)


class _Graph:
    def __init__(self, decoder: Decoder, rows: Rows, step: TritonStep, size: int, width: int) -> None:
        self._step, self._size, self._width = step, size, width
        self._token_ids = torch.zeros(size, dtype=torch.int64, device=decoder.device)
        windows = decoder.config.windows

        def compute() -> Tensor:
            x = decoder.forward(self._token_ids, lambda i, q, k, v: step.attend(i, q, k, v, windows[i]), rows)
            return decoder.logits(x, rows)

        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                compute()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._logits = compute()

    def run(self, batch: Batch) -> Tensor:
        padded, step = pad_decode(batch, self._size, self._width), self._step
        for static, values in (
            (self._token_ids, padded.token_ids),
            (step.positions, padded.positions),
            (step.slot_mapping, padded.slot_mapping),
            (step.seq_lens, padded.seq_lens),
            (step.block_table, padded.block_tables),
        ):
            static.copy_(torch.tensor(values, dtype=static.dtype))
        self._graph.replay()
        return self._logits
