"""What a user gets back for one request.

Knows nothing of how it came about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.request import Request
from scheduler.stopping import StopRules

if TYPE_CHECKING:
    from model.sampling import Sampled


@dataclass(frozen=True, slots=True)
class Completion:
    """One continuation."""

    token_ids: tuple[int, ...]
    text: str
    """Without the token or string that ended it; empty where there is no tokenizer."""
    finish_reason: str
    """`stop`, `length`, `abort` or `error`."""
    logprob: float
    """Sum over its tokens."""
    logprobs: tuple[Sampled, ...] = ()
    """Per token, where asked for."""


@dataclass(frozen=True, slots=True)
class RequestResult:
    """Times in seconds; `ttft` from arrival to the first token, `tpot` per further token. None: there was none."""

    index: int
    completions: tuple[Completion, ...]
    error: str | None
    prompt_tokens: int
    hit_tokens: int
    """Prompt tokens found in the cache when it was first admitted, in whole blocks."""
    rehit_tokens: int
    """Tokens found in the cache when it came back from a preemption."""
    recomputed_tokens: int
    """Tokens computed more than once because of preemptions."""
    preemptions: int
    inflight_waits: int
    queued: float | None
    ttft: float | None
    tpot: float | None
    e2e: float
    reasons: Mapping[str, int] | None = None
    """Why its blocks hit or missed, where a ledger is kept."""
    prompt_logprobs: tuple[Sampled, ...] = ()
    """For prompt tokens 1, 2, …, where asked for."""
    partial_hit_tokens: int = 0
    """Prompt tokens beyond those, copied from the block where the prompt leaves the cache (`partial_reuse`)."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Of the first (best) completion."""
        return self.completions[0].token_ids

    @property
    def text(self) -> str:
        """Of the first (best) completion."""
        return self.completions[0].text

    @property
    def output_tokens(self) -> int:
        """Of all completions."""
        return sum(len(completion.token_ids) for completion in self.completions)


def time_per_token(request: Request) -> float | None:
    """Seconds per output token after the first; of the longest branch where there are several."""
    longest = max(len(branch.outputs) for branch in request.branches)
    if request.first_token_at is None or request.finished_at is None or longest < 2:
        return None
    return (request.finished_at - request.first_token_at) / (longest - 1)


def result_of(request: Request, stop: StopRules) -> RequestResult:
    """The result of a finished request."""
    assert request.finished_at is not None
    first, arrival = request.first_token_at, request.arrival
    return RequestResult(
        index=request.index,
        completions=tuple(
            Completion(
                tuple(branch.outputs),
                stop.text(request.params, branch.outputs),
                branch.finish_reason or "abort",
                branch.logprob,
                tuple(branch.tops),
            )
            for branch in request.branches
        ),
        error=request.error,
        prompt_tokens=len(request.prompt),
        hit_tokens=request.hit_tokens or 0,
        rehit_tokens=request.rehit_tokens,
        recomputed_tokens=request.recomputed_tokens,
        preemptions=request.preemptions,
        inflight_waits=request.inflight_waits,
        queued=None if request.admitted_at is None else request.admitted_at - arrival,
        ttft=None if first is None else first - arrival,
        tpot=time_per_token(request),
        e2e=request.finished_at - arrival,
        reasons=request.reasons,
        prompt_logprobs=tuple(request.prompt_scores),
        partial_hit_tokens=request.partial_hit_tokens,
    )
