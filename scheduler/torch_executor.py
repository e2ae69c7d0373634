"""An executor with a model: moves blocks, computes logits, draws tokens.

Log-probabilities of a prompt are scored chunk by chunk, each position by the row before it.

Knows nothing of queues and of why a step looks as it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from model.batch import Batch
from model.sampling import Sampled, SamplingParams, sample, score
from scheduler.batching import build_batch
from scheduler.request import Branch
from scheduler.step import Chunk, Outcome, Step

BlockPairs = Sequence[tuple[int, int]]
Sample = Callable[
    [torch.Tensor, Sequence[SamplingParams], Sequence[Sequence[int]], Sequence[int]],
    list[Sampled],
]
"""As `model.sampling.sample`."""


class Runner(Protocol):
    """A model over paged K and V."""

    def run(self, batch: Batch) -> torch.Tensor:
        """Logits [len(batch.logit_rows), vocab_size], float32."""


class Store(Protocol):
    """The K and V that the runner reads and writes."""

    def copy(self, pairs: BlockPairs) -> None:
        """(source, destination) blocks."""

    def swap_out(self, pairs: BlockPairs) -> None:
        """(device, host) blocks."""

    def swap_in(self, pairs: BlockPairs) -> None:
        """(host, device) blocks."""


class TorchExecutor:
    """One step at a time, as it is written."""

    def __init__(self, runner: Runner, store: Store, block_size: int, sample: Sample = sample) -> None:
        self.runner = runner
        self.store = store
        self.block_size = block_size
        self.sample = sample

    def execute(self, step: Step, until: float) -> Outcome:
        """As `Executor.execute`; raises what runner and sampler raise."""
        moves = {"copy": self.store.copy, "out": self.store.swap_out, "in": self.store.swap_in}
        for kind, pairs in step.memory:
            moves[kind](pairs)
        logits = self.runner.run(build_batch(step, self.block_size))
        rows, drawing = self._drawing_rows(step, logits)
        if not drawing:
            return Outcome([])
        params: list[SamplingParams] = [branch.request.sampling for branch in drawing]
        penalised = [p.repetition_penalty != 1 for p in params]
        histories = [_history(branch) if wanted else () for branch, wanted in zip(drawing, penalised, strict=True)]
        draws = [len(branch.outputs) * branch.request.num_draws + branch.index for branch in drawing]
        picked = logits if rows == list(range(logits.shape[0])) else logits[rows]
        return Outcome(self.sample(picked, params, histories, draws))

    def _drawing_rows(self, step: Step, logits: torch.Tensor) -> tuple[list[int], list[Branch]]:
        """Logit rows from which tokens are drawn, and for whom; scores prompts on the way."""
        rows: list[int] = []
        drawing: list[Branch] = []
        row = 0
        for chunk in step.chunks:
            if chunk.scores_prompt:
                self._score_prompt(chunk, logits[row : row + chunk.stop - chunk.start])
                row += chunk.stop - chunk.start - 1
            if chunk.scores_prompt or chunk.samples:
                rows += [row] * len(chunk.samples)
                drawing += chunk.samples
                row += 1
        rows += range(row, row + len(step.decodes))
        return rows, drawing + step.decodes

    @staticmethod
    def _score_prompt(chunk: Chunk, logits: torch.Tensor) -> None:
        request, seq = chunk.branch.request, chunk.branch.seq
        stop = min(chunk.stop + 1, len(request.prompt))
        tokens = seq.token_ids_between(chunk.start + 1, stop)
        request.prompt_scores += score(logits[: len(tokens)], tokens, request.params.prompt_logprobs or 0)


def _history(branch: Branch) -> list[int]:
    return branch.request.prompt.tolist() + branch.outputs.tolist()
