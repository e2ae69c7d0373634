"""What a step's tokens mean: branches grow, fork, stop; requests finish.

Knows nothing of how the step was chosen.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from scheduler.beam import Extension, is_decided, score, select
from scheduler.request import Branch, Request, State
from scheduler.running import Running
from scheduler.step import Chunk, Outcome, Step
from scheduler.stopping import StopRules

if TYPE_CHECKING:
    from model.sampling import Sampled


class Outcomes:
    """Applies the outcome of a step to the books."""

    def __init__(self, running: Running, stop: StopRules) -> None:
        self.running = running
        self.stop = stop
        self.finished: list[Request] = []
        """Since somebody last took them."""

    def commit(self, step: Step, outcome: Outcome, now: float) -> None:
        """`now`: when the step was done."""
        sampled = None if outcome.sampled is None else iter(outcome.sampled)
        chunks = [(chunk, None if sampled is None else [next(sampled) for _ in chunk.samples]) for chunk in step.chunks]
        searching: dict[Request, None] = {}
        stopped = [] if sampled is None else self._commit_decodes(step, sampled, searching)
        due = self.running.decoding.advance(outcome.repeats)
        for branch in stopped:
            self._finish(branch, "stop", now)
        for branch in due:
            if branch in self.running.decoding.members:
                self._event(branch, now)
        for chunk, drawn in chunks:
            if chunk.branch in self.running.prefilling:  # else aborted meanwhile
                self._commit_chunk(chunk, drawn, now, searching)
        for request in searching:
            if all(beam.drawn is not None for beam in request.live_branches):
                self._search(request, now)

    def finish_request(self, request: Request, now: float) -> None:
        """Nothing of it runs any more."""
        self.running.remove(request)
        request.head = None
        request.state = State.FINISHED
        request.finished_at = now
        params = request.params
        if params.beam_width:
            best = sorted(request.hypotheses, key=lambda found: -found[0])[: params.n]
            request.branches = [branch for _, branch in best] or request.branches[:1]
        elif len(request.branches) > params.n:
            request.branches = sorted(request.branches, key=lambda branch: -branch.logprob)[: params.n]
        request.num_outputs = sum(len(branch.outputs) for branch in request.branches)
        self.finished.append(request)

    def _commit_chunk(
        self, chunk: Chunk, drawn: list[Sampled] | None, now: float, searching: dict[Request, None]
    ) -> None:
        branch, running = chunk.branch, self.running
        request, seq = branch.request, branch.seq
        running.manager.promote_to_immutable(seq, chunk.stop)
        if chunk.stop < seq.num_tokens:
            return
        del running.prefilling[branch]
        if branch.index < 0:
            running.split(request)
            return
        request.head = None
        for other in chunk.samples:
            if other is not branch:
                running.fork(branch, other)
        for i, other in enumerate(chunk.samples):
            if request.params.beam_width:
                assert drawn is not None, "beams need log-probabilities"
                other.drawn = drawn[i]
                searching[request] = None
            elif drawn is not None:
                self._accept(other, drawn[i], now)
            else:
                self._accept_foretold(other, now)

    def _commit_decodes(self, step: Step, sampled: Iterator[Sampled], searching: dict[Request, None]) -> list[Branch]:
        running, stopped = self.running, []
        members, ends = running.decoding.members, self.stop.ends
        for branch, drawn in zip(step.decodes, sampled, strict=True):
            if branch not in members:
                continue  # aborted meanwhile
            params = branch.request.params
            if params.beam_width:
                running.decoding.leave(branch)
                running.settle_to(branch, branch.num_tokens)
                branch.drawn = drawn
                searching[branch.request] = None
                continue
            self._append(branch, drawn)
            if ends(params, branch.outputs):
                stopped.append(branch)
        return stopped

    def _event(self, branch: Branch, now: float) -> None:
        running = self.running
        decoding = running.decoding
        if decoding.num_tokens(branch) >= decoding.members[branch]:
            self._finish(branch, "length", now)
            return
        if branch.seq.behind is None:
            running.settle(branch)
            running.put_off(branch)
        decoding.expect(branch)
        running.growing[branch] = 1

    def _append(self, branch: Branch, drawn: Sampled) -> None:
        branch.outputs.append(drawn.token_id)
        branch.logprob += drawn.logprob
        if branch.request.params.logprobs is not None:
            branch.tops.append(drawn)

    def _accept(self, branch: Branch, drawn: Sampled, now: float) -> None:
        self._append(branch, drawn)
        self._after_first(branch, now, self.stop.ends(branch.request.params, branch.outputs))

    def _accept_foretold(self, branch: Branch, now: float) -> None:
        assert self.running.foretell is not None, "an executor that draws no tokens needs them foretold"
        n = len(branch.outputs)
        branch.outputs.extend(self.running.foretell(branch, n, n + 1))
        self._after_first(branch, now, False)

    def _after_first(self, branch: Branch, now: float, stops: bool) -> None:
        request = branch.request
        if request.first_token_at is None:
            request.first_token_at = now
        if stops or branch.num_tokens >= self.running.most_tokens(request):
            self._finish(branch, "stop" if stops else "length", now)
        else:
            self.running.join(branch)

    def _finish(self, branch: Branch, reason: str, now: float) -> None:
        self.running.drop(branch)
        branch.finish_reason = reason
        if not branch.request.live_branches:
            self.finish_request(branch.request, now)

    # Beams

    def _search(self, request: Request, now: float) -> None:
        params, running = request.params, self.running
        if request.first_token_at is None:
            request.first_token_at = now
        beams = request.live_branches
        going, ended = select(
            beams, params.beam_width, lambda beam, token: self.stop.ends(params, _extended(beam.outputs, token))
        )
        length = len(beams[0].outputs) + 1
        at_end = len(request.prompt) + length >= running.most_tokens(request)
        for extension in ended:
            self._keep(extension, "stop")
        for extension in going if at_end else ():
            self._keep(extension, "length")
        longest = running.most_tokens(request) - len(request.prompt)
        scores = [found[0] for found in request.hypotheses]
        if at_end or not going or is_decided(going, scores, params.beam_width, longest, length, params.length_penalty):
            self.finish_request(request, now)
        else:
            self._continue(request, beams, going)

    def _keep(self, extension: Extension, reason: str) -> None:
        request = extension.parent.request
        found = _child(extension, len(request.hypotheses))
        found.finish_reason = reason
        value = score(found.logprob, len(found.outputs), request.params.length_penalty)
        request.hypotheses.append((value, found))

    def _continue(self, request: Request, beams: list[Branch], going: list[Extension]) -> None:
        running, kept = self.running, []
        for index, extension in enumerate(going):
            child = _child(extension, index)
            running.fork(extension.parent, child)
            kept.append(child)
        for beam in beams:
            running.drop(beam)
        request.branches = kept
        for child in kept:
            running.join(child)


def _extended(outputs: array[int], token: int) -> array[int]:
    longer = outputs[:]
    longer.append(token)
    return longer


def _child(extension: Extension, index: int) -> Branch:
    parent = extension.parent
    child = Branch(parent.request, index)
    child.outputs = _extended(parent.outputs, extension.token)
    child.logprob = extension.logprob
    child.computed_before = parent.computed_before
    drawn = parent.drawn
    if parent.request.params.logprobs is not None and drawn is not None:
        child.tops = [*parent.tops, replace(drawn, token_id=extension.token, logprob=extension.token_logprob)]
    return child
