"""How fast the model alone is, against transformers in the same process: first token cold and warm, decode.

Each contestant answers the same questions about the same weights; measurements alternate and the best of several
counts, so that what else the machine does hits both. Functions only: `bench_engine` prints them.

Knows nothing of schedulers: block tables are counted out by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

from cache.store import KVStore
from model.backend.base import Backend
from model.batch import Batch
from model.decoder import Decoder
from model.runner import ModelRunner

Row = dict[str, Any]
Timer = Callable[[], float]
"""Seconds: `time.perf_counter`, or `time.process_time` for one thread on a machine that does other things too."""


class Contestant(Protocol):
    """Somebody who can be timed. Every call returns seconds."""

    name: str

    def cold(self, prompt: Sequence[int]) -> float:
        """From a prompt to its first token, nothing cached."""

    def warm(self, prompt: Sequence[int], cached: int) -> float:
        """The same with the first `cached` tokens cached; making them so is not timed."""

    def decode(self, prompt: Sequence[int], batch_size: int, steps: int) -> float:
        """Per step, for so many sequences of this prompt at once; the prefill is not timed."""


class Ours:
    """A decoder over a pool of its own."""

    def __init__(
        self,
        decoder: Decoder,
        backend: Backend,
        num_blocks: int,
        block_size: int = 16,
        invariant: bool = False,
        timer: Timer = perf_counter,
    ) -> None:
        self._timer = timer
        config = decoder.config
        self.name = "invariant" if invariant else "fast"
        self.store = KVStore(
            num_blocks, block_size, config.num_layers, config.num_kv_heads, config.head_dim,
            dtype=decoder.dtype, device=decoder.device,
        )  # fmt: skip
        self.runner = ModelRunner(decoder, self.store, backend, invariant)

    def cold(self, prompt: Sequence[int]) -> float:
        """As `Contestant`."""
        start = self._timer()
        self._run([list(prompt)], [0])
        return self._timer() - start

    def warm(self, prompt: Sequence[int], cached: int) -> float:
        """As `Contestant`."""
        self._run([list(prompt[:cached])], [0])
        start = self._timer()
        self._run([list(prompt)], [cached])
        return self._timer() - start

    def decode(self, prompt: Sequence[int], batch_size: int, steps: int) -> float:
        """As `Contestant`."""
        seqs = [list(prompt) for _ in range(batch_size)]
        logits = self._run(seqs, [0] * batch_size)
        start = self._timer()
        for _ in range(steps):
            for seq, token in zip(seqs, logits.argmax(-1).tolist(), strict=True):
                seq.append(token)
            logits = self._run(seqs, [len(seq) - 1 for seq in seqs])
        return (self._timer() - start) / steps

    def _run(self, seqs: Sequence[list[int]], computed: Sequence[int]) -> torch.Tensor:
        """Compute what is not computed; sequence i has an equal share of the pool, its blocks in reverse order."""
        share = self.store.num_blocks // len(seqs)
        tables = [range((i + 1) * share - 1, i * share - 1, -1) for i in range(len(seqs))]
        parts = [(seq[done:], done, table) for seq, done, table in zip(seqs, computed, tables, strict=True)]
        logits = self.runner.run(Batch.of(parts, self.store.block_size))
        if logits.is_cuda:
            torch.cuda.synchronize()
        return logits


class Transformers:
    """The same weights in transformers, with its own KV cache."""

    name = "transformers"

    def __init__(self, folder: str | Path, timer: Timer = perf_counter) -> None:
        """`folder`: as `model.pretrained.from_folder` takes it. Raises ImportError where transformers is missing."""
        import transformers  # a test-only dependency

        self._timer = timer
        loader: Any = transformers.AutoModelForCausalLM
        self._model: Any = loader.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def cold(self, prompt: Sequence[int]) -> float:
        """As `Contestant`."""
        start = self._timer()
        self._model(torch.tensor([list(prompt)]), use_cache=True, logits_to_keep=1)
        return self._timer() - start

    @torch.inference_mode()
    def warm(self, prompt: Sequence[int], cached: int) -> float:
        """As `Contestant`."""
        past = self._model(torch.tensor([list(prompt[:cached])]), use_cache=True, logits_to_keep=1).cache
        start = self._timer()
        self._model(torch.tensor([list(prompt[cached:])]), cache=past, use_cache=True, logits_to_keep=1)
        return self._timer() - start

    @torch.inference_mode()
    def decode(self, prompt: Sequence[int], batch_size: int, steps: int) -> float:
        """As `Contestant`."""
        out = self._model(torch.tensor([list(prompt)] * batch_size), use_cache=True, logits_to_keep=1)
        start = self._timer()
        for _ in range(steps):
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            out = self._model(token, cache=out.cache, use_cache=True, logits_to_keep=1)
        return (self._timer() - start) / steps


def questions(prompt: Sequence[int], cached: int, batch_sizes: Sequence[int], steps: int) -> Iterator[tuple[str, Any]]:
    """What is asked: a name, and how to ask a contestant."""
    yield "cold_ttft_s", lambda who: who.cold(prompt)
    yield "warm_ttft_s", lambda who: who.warm(prompt, cached)
    for size in batch_sizes:
        yield f"decode_step_s_batch{size}", lambda who, size=size: who.decode(prompt[:128], size, steps)


def race(
    contestants: Sequence[Contestant],
    prompt: Sequence[int],
    cached: int,
    batch_sizes: Sequence[int] = (1, 8),
    steps: int = 16,
    rounds: int = 3,
) -> list[Row]:
    """One row per contestant: seconds, the best of `rounds` after one round to warm up; contestants take turns."""
    rows: list[Row] = [{"contestant": who.name} for who in contestants]
    for name, ask in questions(prompt, cached, batch_sizes, steps):
        best = [float("inf")] * len(contestants)
        for turn in range(rounds + 1):
            for i, who in enumerate(contestants):
                seconds = _asked(ask, who)
                if turn:
                    best[i] = min(best[i], seconds)
        for row, seconds in zip(rows, best, strict=True):
            row[name] = seconds
    return rows


def _asked(ask: Callable[[Contestant], float], who: Contestant) -> float:
    return ask(who)
