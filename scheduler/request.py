"""A request and its branches: what was asked, what is known so far, where it stands.

    known tokens    0 ───── prompt ───── num_prompt ── outputs ── num_tokens
    sequence        0 ── computed ── has slots ──┘        a suffix of the known tokens may not have slots yet: backlog

A request has one branch per continuation (n, best_of, beams). All branches start as one prefill: the head.

Knows nothing of queues, time or how tokens are chosen.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Items
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from cache.access import Access
from cache.extra_keys import NO_EXTRA_KEYS, ExtraKeys
from cache.sequence import Sequence
from cache.tokens import TokenIds

if TYPE_CHECKING:
    from model.sampling import Sampled, SamplingParams


class State(StrEnum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    FINISHED = "finished"


class Branch:
    """One continuation of a request: its output tokens, and the sequence that holds their K and V."""

    __slots__ = (
        "computed_before", "drawn", "event", "finish_reason", "foretold", "index", "joined_at", "joined_with",
        "logprob", "outputs", "request", "seq", "tops",
    )  # fmt: skip

    def __init__(self, request: Request, index: int, seq: Sequence | None = None) -> None:
        self.request = request
        self.index = index
        self.seq = seq or Sequence(request.prompt, request.access, request.extra_keys)
        """Holds nothing until it is allocated, or forked from the request's head."""
        self.outputs: array[int] = array("i")
        self.logprob = 0.0
        """Of all outputs together."""
        self.tops: list[Sampled] = []
        """Per output, where log-probabilities were asked for."""
        self.finish_reason: str | None = None
        self.foretold: array[int] | None = None
        """All outputs it will have, where they are known in advance and were asked for."""
        self.computed_before = 0
        """Tokens computed at least once; what is computed below that was lost to a preemption."""
        self.joined_at = self.joined_with = 0
        """While decoding: the epoch at which it joined, and the tokens it had then (see `decoding.py`)."""
        self.event = 0
        self.drawn: Sampled | None = None
        """A beam's candidates, until all beams of the request have theirs."""

    @property
    def live(self) -> bool:
        """Whether it still grows."""
        return self.finish_reason is None

    @property
    def num_tokens(self) -> int:
        """Prompt and outputs known so far."""
        return self.request.num_prompt + len(self.outputs)

    def known(self, start: int, stop: int) -> array[int]:
        """Output tokens by position; `start` lies behind the prompt."""
        n = self.request.num_prompt
        return self.outputs[start - n : stop - n]


class Request:
    """One prompt and what is asked of it. `index` is unique and grows with arrival."""

    def __init__(
        self,
        index: int,
        prompt: TokenIds,
        params: SamplingParams,
        arrival: float = 0.0,
        *,
        priority: int = 0,
        extra_keys: ExtraKeys = NO_EXTRA_KEYS,
        session: str | None = None,
        turn: int = 0,
        category: str | None = None,
    ) -> None:
        """`priority`: higher goes first, where the order policy looks at it."""
        self.index = index
        self.prompt = prompt
        self.num_prompt = len(prompt)
        self.params = params
        self.arrival = arrival
        self.priority = priority
        self.extra_keys = extra_keys
        self.access = Access(index, arrival, len(prompt), session, turn, category, priority)
        self.state = State.WAITING
        self.error: str | None = None
        self.prompt_scores: list[Sampled] = []
        num_branches = 1 if params.beam_width else params.best_of or params.n
        self.branches = [Branch(self, i, None if i else self.new_sequence()) for i in range(num_branches)]
        self.sampling = replace(params, temperature=0.0) if params.beam_width else params
        """What the sampler is told: beams are no game of chance."""
        self.num_draws = len(self.branches)
        """Random numbers drawn per position, one per branch."""
        self.head: Branch | None = self.branches[0]
        """What is prefilled first: branch 0, or after a preemption the part that all live branches share; then None."""
        self.saved: Any = None
        """What a preemption kept of it, for the policy that keeps something."""
        self.hypotheses: list[tuple[float, Branch]] = []
        """Finished beams and their scores."""
        self.reasons: dict[str, int] | None = None
        """Why its blocks hit or missed at first admission, if somebody keeps that ledger."""
        self.num_outputs = 0
        """Of all branches, counted when each ends."""
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.finished_at: float | None = None
        self.hit_tokens: int | None = None
        """Found in the cache at first admission, in whole blocks; None before."""
        self.partial_hit_tokens = 0
        """Copied from the block where its prompt leaves the cache, where the allocator does that."""
        self.rehit_tokens = 0
        """Found in the cache at re-admission after a preemption; no prefix hits."""
        self.recomputed_tokens = 0
        """Computed once more because a preemption lost them."""
        self.swapped_in_tokens = 0
        self.preemptions = 0
        self.inflight_waits = 0
        """Scheduling rounds in which it stood back for a prefix that another request was computing."""

    @property
    def width(self) -> int:
        """Branches it may run at once."""
        return self.params.beam_width or len(self.branches)

    @property
    def live_branches(self) -> list[Branch]:
        """Branches that still grow."""
        return [branch for branch in self.branches if branch.finish_reason is None]

    @property
    def sequences(self) -> list[Sequence]:
        """The sequences that hold blocks now."""
        branches = dict.fromkeys([*self.branches] if self.head is None else [self.head, *self.branches])
        return [branch.seq for branch in branches if branch.seq.allocated]

    @property
    def head_seq(self) -> Sequence:
        """The sequence of the head, of a request that has one."""
        assert self.head is not None
        return self.head.seq

    def let_in(self, tick: int, now: float) -> None:
        """It is about to look its head up: what policies are told of it from now on."""
        again = self.hit_tokens is not None
        self.access = replace(self.access, index=tick, time=now, request=self.index, again=again)
        self.head_seq.access = self.access

    def new_sequence(self, outputs: Items[int] = ()) -> Sequence:
        """A sequence of the prompt and some outputs, holding no blocks."""
        wants_scores = self.params.prompt_logprobs is not None and len(self.prompt_scores) < len(self.prompt) - 1
        seq = Sequence(self.prompt, self.access, self.extra_keys, skip_lookup=wants_scores)
        if outputs:
            seq.extend(array("i", outputs))
        return seq
