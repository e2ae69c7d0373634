"""Continuous batching with a token budget: what is computed in the next step.

    1. room      every running branch needs slots for its next tokens: where blocks are short, victims are preempted
    2. grow      slots are taken, shared tails copied
    3. decode    every decoding branch computes one token
    4. prefill   what is left of the budget goes to prompts begun, in chunks
    5. admit     then to swapped requests, then to waiting ones in the order of the policy

A request's cached prefix is matched, pinned and skipped as a whole at admission, before any chunk is sized. Blocks for
all of its known tokens are taken at that time, so a prefill once begun never runs short.

Deterministic: equal arrivals and times give equal decisions. Knows nothing of tensors, text or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cache.ledger import Ledger
from cache.ledger_requests import RequestReasons
from cache.manager import CacheManager
from cache.observer import Observer
from cache.sequence import Sequence
from scheduler.checks import Limits
from scheduler.growth import are_short, blocks_needed
from scheduler.inflight import worth_waiting_for
from scheduler.order.base import Order
from scheduler.outcomes import Outcomes
from scheduler.preemption.base import Preemption
from scheduler.request import Branch, Request, State
from scheduler.running import Foretell, Running
from scheduler.step import Chunk, Outcome, Step
from scheduler.stopping import StopRules
from scheduler.victim.base import Victim
from scheduler.waiting import Waiting

Explain = Callable[[Sequence], Mapping[str, int]]
"""Reasons for hits and misses of a sequence just allocated, in blocks."""


class Scheduler:
    """Requests in, steps out, outcomes in, finished requests out."""

    def __init__(
        self,
        manager: CacheManager,
        order: Order,
        victim: Victim,
        preemption: Preemption,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        max_chunk_tokens: int | None = None,
        max_inflight_waits: int = 64,
        limits: Limits | None = None,
        stop: StopRules | None = None,
        foretell: Foretell | None = None,
        explain: Explain | None = None,
    ) -> None:
        """`max_num_seqs`: branches running at once; `max_num_batched_tokens`: tokens computed per step;
        `max_chunk_tokens`: tokens of one prompt per step; `max_inflight_waits`: rounds a request stands back for a
        prefix that another one is computing, 0 for never; `foretell`: output tokens where they are known in advance.

        Raises ValueError where a number is not positive, or decodes alone could exceed the token budget.
        """
        for name, value in (("max_num_seqs", max_num_seqs), ("max_chunk_tokens", max_chunk_tokens)):
            if value is not None and value < 1:
                raise ValueError(f"scheduler.{name} must be 1 or more, got {value}")
        if max_num_batched_tokens < max_num_seqs:
            raise ValueError(
                f"scheduler.max_num_batched_tokens={max_num_batched_tokens} is less than scheduler.max_num_seqs="
                f"{max_num_seqs}: each running sequence computes a token per step, so the budget must hold them all"
            )
        self.manager = manager
        self.victim = victim
        self.preemption = preemption
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_chunk_tokens = max_chunk_tokens or max_num_batched_tokens
        self.max_inflight_waits = max_inflight_waits
        self.limits = limits or Limits()
        self.explain = explain
        self.waiting = Waiting(order)
        self.swapped = Waiting(order)
        self.running = Running(manager, self.limits.max_model_len, foretell)
        self.outcomes = Outcomes(self.running, stop or StopRules())
        self.num_steps = self._num_admissions = 0
        self.num_preemptions = 0

    def observe(self, observer: Observer) -> None:
        """From now on, tell `observer` what happens to prefixes; of a ledger, every request gets its own reasons.

        Raises CacheInUse unless the cache is cold.
        """
        self.manager.observe(observer)
        if isinstance(observer, Ledger):
            self.explain = RequestReasons(observer)

    # Requests

    def add(self, request: Request, now: float) -> None:
        """Queue a request, or finish it at once with an error where it can never run."""
        request.error = request.error or self.limits.refusal(request, self.manager, self.max_num_seqs)
        if request.error is not None:
            self._fail(request, now)
            return
        self.waiting.add(request)

    def abort(self, request: Request, now: float, reason: str = "abort") -> None:
        """Stop a request wherever it is; one that is finished stays as it is."""
        match request.state:
            case State.FINISHED:
                return
            case State.WAITING:
                self.waiting.remove(request)
            case State.SWAPPED:
                self.swapped.remove(request)
                self.preemption.forget(request)
        self.running.remove(request)
        for branch in request.live_branches:
            branch.finish_reason = reason
        self.outcomes.finish_request(request, now)

    def take_finished(self) -> list[Request]:
        """Requests that finished since the last call."""
        finished, self.outcomes.finished = self.outcomes.finished, []
        return finished

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished."""
        return bool(self.running.requests or self.waiting or self.swapped)

    def set_weights_version(self, version: str, now: float) -> None:
        """New weights: nothing computed with the old ones is read again, whether cached, running or swapped out.

        Running requests start over from the tokens they have; call it between two steps.
        """
        if version == self.manager.weights_version:
            return
        nowhere = Step(self.num_steps)
        for request in list(self.running.requests):
            self._preempt(request, nowhere, now, keep=False)
        for request in list(self.swapped):
            self._forget_saved(request)
        self.manager.set_weights_version(version)

    def check_integrity(self) -> None:
        """Raise AssertionError where queues, branches and blocks disagree. Scans everything."""
        self.manager.check_integrity()
        running = self.running
        owned = [seq for request in running.requests for seq in request.sequences]
        assert self.manager.num_live == len(owned), "a sequence is held by no running request"
        assert running.num_branches == sum(request.width for request in running.requests) <= self.max_num_seqs
        for request in running.requests:
            assert request.state is State.RUNNING
            for branch in request.live_branches:
                places = (branch in running.prefilling) + (branch in running.decoding.members)
                assert places == (request.head is None and branch.drawn is None) or branch is request.head
        for queue, state in ((self.waiting, State.WAITING), (self.swapped, State.SWAPPED)):
            for request in queue:
                assert request.state is state
                assert not request.sequences, "a queued request holds blocks"
        members = running.decoding.members
        assert running.decoding.context == sum(running.decoding.num_tokens(branch) for branch in members)

    # Steps

    def schedule(self, now: float) -> Step:
        """Decide the next step. An empty one means that there is nothing to do before something arrives."""
        step = Step(self.num_steps)
        self.num_steps += 1
        self._make_room(step, now)
        step.move("copy", self.running.grow())
        decoding = self.running.decoding
        step.decodes, step.decode_context = list(decoding.members), decoding.context
        budget = self.max_num_batched_tokens - len(decoding)
        for branch in list(self.running.prefilling):
            budget -= self._chunk(branch, step, budget)
        settled = self._admit(step, budget, now)
        step.used_blocks = self.manager.allocator.num_in_use
        if settled and step.decodes and not (step.chunks or step.memory):
            step.most_repeats = decoding.steps_to_event()
        return step

    def commit(self, step: Step, outcome: Outcome, now: float) -> None:
        """Apply what came of the step; `now` is when it was done."""
        self.outcomes.commit(step, outcome, now)

    def undo(self, step: Step, now: float) -> None:
        """The step was decided but could not be done (out of memory, interrupted): nothing it was to move or compute is
        believed. What runs starts over from the tokens it has and from what is cached."""
        for request in list(self.running.requests):
            self._preempt(request, step, now, keep=False)
        for request in step.preempted:
            if request.state is State.SWAPPED:
                self._forget_saved(request)

    # Inside

    def _forget_saved(self, request: Request) -> None:
        self.swapped.remove(request)
        self.preemption.forget(request)
        request.state = State.WAITING
        self.waiting.add(request)

    def _make_room(self, step: Step, now: float) -> None:
        running = self.running
        while are_short(running.growing, self.manager):
            in_line = sorted(running.requests, key=self.waiting.order.rank)
            if len(in_line) > 1:
                self._preempt(self.victim.choose(in_line[1:], self.manager), step, now)
                continue
            (request,) = in_line
            request.error = (
                f"it runs alone and needs {blocks_needed(running.growing, self.manager)} more blocks of "
                f"{self.manager.block_size} tokens, but the pool of {self.manager.allocator.num_blocks} is used up"
            )
            self._fail(request, now)

    def _preempt(self, request: Request, step: Step, now: float, keep: bool = True) -> None:
        for branch in request.live_branches:
            self.running.settle(branch)
        saved = keep and self.preemption.save(request, self.manager, step)
        self.running.suspend(request)
        if not saved and request.head_seq.skip_lookup:
            request.prompt_scores.clear()  # the whole prompt is computed again
        request.state = State.SWAPPED if saved else State.WAITING
        (self.swapped if saved else self.waiting).add(request)
        request.preemptions += 1
        self.num_preemptions += 1
        step.preempted.append(request)
        if not self.manager.fits(request.head_seq):
            request.error = f"its {request.head_seq.num_tokens} tokens have outgrown the pool"
            self.abort(request, now, "error")

    def _chunk(self, branch: Branch, step: Step, budget: int) -> int:
        seq, request = branch.seq, branch.request
        start = seq.num_computed_tokens
        count = min(seq.num_tokens - start, budget, self.max_chunk_tokens)
        if count <= 0:
            return 0
        stop = start + count
        request.recomputed_tokens += max(0, min(stop, branch.computed_before) - start)
        samples: tuple[Branch, ...] = ()
        if stop == seq.num_tokens and branch.index >= 0:
            samples = (branch,) if request.head is not branch else tuple(request.live_branches)
        scores = seq.skip_lookup and len(request.prompt_scores) < len(request.prompt) - 1
        step.chunks.append(Chunk(branch, start, stop, samples, scores))
        return count

    def _admit(self, step: Step, budget: int, now: float) -> bool:
        """Returns whether the same would be decided again as long as nothing but decoding happens."""
        for request in list(self.swapped):
            if budget <= 0 or not self._has_seat(request) or not self._allocate(request, step, now):
                return True
            self.swapped.remove(request)
            self._restore(request, step)
            budget -= self._start(request, step, budget)
        if not self.waiting:
            return True
        admitted, settled = [], True
        for request in self.waiting.candidates(now, self._num_matched):
            if budget <= 0 or not self._has_seat(request):
                break
            if self._stands_back(request):
                settled = False
                continue
            if not self._allocate(request, step, now):
                settled = self.waiting.order.static
                break
            admitted.append(request)
            budget -= self._start(request, step, budget)
        for request in admitted:
            self.waiting.remove(request)
        return settled

    def _has_seat(self, request: Request) -> bool:
        return self.running.num_branches + request.width <= self.max_num_seqs

    def _allocate(self, request: Request, step: Step, now: float) -> bool:
        seq = request.head_seq
        alone = not self.running.requests  # then the watermark protects nobody
        if not self.manager.can_allocate(seq) and not (alone and self.manager.fits(seq)):
            return False
        request.let_in(self._num_admissions, now)
        self._num_admissions += 1
        found = self.manager.allocate(seq)
        if seq.partial_copy is not None:
            step.move("copy", [seq.partial_copy])
        if request.hit_tokens is None:
            request.hit_tokens, request.admitted_at = seq.num_hit_blocks * self.manager.block_size, now
            request.partial_hit_tokens = found - request.hit_tokens
            request.reasons = dict(self.explain(seq)) if self.explain is not None else None
        else:
            request.rehit_tokens += found
        return True

    def _restore(self, request: Request, step: Step) -> None:
        seq = request.head_seq
        hit = seq.num_computed_tokens
        computed = self.preemption.restore(request, self.manager, step)
        self.manager.mark_computed(seq, computed)
        request.swapped_in_tokens += computed - hit

    def _start(self, request: Request, step: Step, budget: int) -> int:
        assert request.head is not None
        request.state = State.RUNNING
        self.running.start(request)
        step.admitted.append(request)
        return self._chunk(request.head, step, budget)

    def _num_matched(self, request: Request) -> int:
        return self.manager.num_matched_tokens(request.head_seq)

    def _stands_back(self, request: Request) -> bool:
        """Whether it waits one more round for a prefix that is just being computed."""
        prefilling = self.running.prefilling
        if not prefilling or request.inflight_waits >= self.max_inflight_waits:
            return False
        seq = request.head_seq
        if seq.skip_lookup:
            return False
        computing = [branch.seq for branch in prefilling]
        if not worth_waiting_for(seq, self._num_matched(request), computing, self.manager.block_size):
            return False
        request.inflight_waits += 1
        return True

    def _fail(self, request: Request, now: float) -> None:
        self.running.remove(request)
        for branch in request.live_branches:
            branch.finish_reason = "error"
        self.outcomes.finish_request(request, now)
