"""One prompt on its way through cache and runner, keeping every logit; and how two such ways differ.

Knows nothing of modes or of why a prompt is cut one way or another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cache.access import Access
from cache.manager import CacheManager
from cache.sequence import Sequence as CachedSequence
from cache.store import KVStore
from cache.tokens import PackedTokens
from model.batch import Batch
from model.runner import ModelRunner

Row = dict[str, Any]


class Run:
    """A prompt and its greedy continuation; `forced` tokens are fed instead of its own choices."""

    def __init__(
        self,
        manager: CacheManager,
        store: KVStore,
        prompt: Sequence[int],
        access: Access,
        forced: Sequence[int] | None = None,
    ) -> None:
        """Allocates the prompt. Raises what the manager raises."""
        self.manager, self.store, self.prompt, self.forced = manager, store, list(prompt), forced
        self.seq = CachedSequence(PackedTokens.of(self.prompt), access)
        self.hit_tokens = manager.allocate(self.seq)
        self.logits: list[Tensor] = []
        self.chosen: list[int] = []
        self.kv = torch.empty(0)
        self.prefill_s = self.decode_s = 0.0

    @staticmethod
    def prefill(runs: Sequence[Run], runner: ModelRunner, chunk: int) -> None:
        """Compute what is not cached of every prompt, at most `chunk` tokens of each per step."""
        while True:
            parts = [(r, min(chunk, len(r.prompt) - r.seq.num_computed_tokens)) for r in runs]
            parts = [(run, count) for run, count in parts if count]
            if not parts:
                return
            _step(runner, parts)

    @staticmethod
    def decode(runs: Sequence[Run], runner: ModelRunner) -> None:
        """One more token each."""
        for run in runs:
            step = len(run.chosen) - 1
            run.store.copy(run.manager.append(run.seq, [run.forced[step] if run.forced else run.chosen[step]]))
        _step(runner, [(run, 1) for run in runs])

    def keep_kv(self) -> None:
        """Remember K and V of the prompt: `[2 · layers, tokens, heads, head_dim]`, as bytes are compared."""
        slots = torch.tensor(self.manager.slot_mapping(self.seq, 0, len(self.prompt)), device=self.store.device)
        self.kv = torch.stack([pool.flatten(0, 1)[slots] for pool in (*self.store.k, *self.store.v)]).cpu()

    def free(self) -> None:
        """Give its blocks back."""
        self.manager.free(self.seq)


def _step(runner: ModelRunner, parts: Sequence[tuple[Run, int]]) -> None:
    new = [(run.seq.token_ids(), run.seq.num_computed_tokens, count) for run, count in parts]
    tables = [run.seq.block_table for run, _ in parts]
    batch = [(ids[first : first + count], first, table) for (ids, first, count), table in zip(new, tables, strict=True)]
    logits = runner.run(Batch.of(batch, runner.block_size)).cpu()
    for (run, count), row in zip(parts, logits, strict=True):
        run.manager.promote_to_immutable(run.seq, run.seq.num_computed_tokens + count)
        if run.seq.num_computed_tokens == run.seq.num_tokens:
            run.logits.append(row)
            run.chosen.append(int(row.argmax()))


def differences(cold: Sequence[Run], other: Sequence[Run]) -> tuple[Row, list[Row]]:
    """How `other` differs from `cold`, run by run of the same prompts: over all, and per output step."""
    steps: list[Row] = []
    first: int | None = None
    for step in range(len(cold[0].logits)):
        a = torch.stack([run.logits[step] for run in cold]).double()
        b = torch.stack([run.logits[step] for run in other]).double()
        log_a, log_b = torch.log_softmax(a, -1), torch.log_softmax(b, -1)
        kl = float((log_a.exp() * (log_a - log_b)).sum(-1).max())
        same = all(x.chosen[step] == y.chosen[step] for x, y in zip(cold, other, strict=True))
        if not same and first is None:
            first = step
        steps.append({"step": step, "max_logit_difference": float((a - b).abs().max()), "max_kl": max(kl, 0.0)})
    unequal = sum(int((_bytes(a.kv) != _bytes(b.kv)).sum()) for a, b in zip(cold, other, strict=True))
    row = {
        "max_logit_difference": max(step["max_logit_difference"] for step in steps),
        "max_kl": max(step["max_kl"] for step in steps),
        "first_differing_token": first,
        "logits_equal": all(_same_logits(a, b) for a, b in zip(cold, other, strict=True)),
        "kv_equal": unequal == 0,
        "kv_differing_share": unequal / sum(_bytes(run.kv).numel() for run in cold),
        "hit_tokens": sum(run.hit_tokens for run in other),
    }
    return row, steps


def _same_logits(a: Run, b: Run) -> bool:
    return all(torch.equal(_bytes(x), _bytes(y)) for x, y in zip(a.logits, b.logits, strict=True))


def _bytes(x: Tensor) -> Tensor:
    return x.contiguous().view(torch.uint8)
