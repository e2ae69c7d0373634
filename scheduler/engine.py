"""What a notebook uses: prompts in, results out, all at once or as they come.

    engine.generate(["What is a KV cache?"], SamplingParams(max_tokens=64))
    for piece in engine.stream(prompts, params): print(piece.text, end="")

A prompt is text, a list of token ids, or a chat (a list of (role, content) pairs). One that cannot be served gets a
result with an `error`; the others go on.

Knows nothing of tensors: an executor has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from cache.errors import CacheInUse
from cache.extra_keys import NO_EXTRA_KEYS, ExtraKeys
from cache.observer import Observer
from cache.tokens import PackedTokens
from model.sampling import SamplingParams
from scheduler.clock import Clock, WallClock
from scheduler.loop import Executor, StepLoop, Watch
from scheduler.request import Branch, Request, State
from scheduler.result import RequestResult, result_of
from scheduler.scheduler import Scheduler

Chat = Sequence[tuple[str, str]]
Prompt = str | Sequence[int] | Chat
UNFINISHED = "\ufffd"
"""What a decoder writes for the first bytes of a character whose other bytes are still to come."""


class Tokenizer(Protocol):
    """Text to ids and back."""

    def prompt(self, text: str) -> list[int]:
        """Ids of a text to be continued, with whatever the model expects in front."""

    def chat(self, messages: Chat) -> list[int]:
        """Ids of a chat, up to where the assistant speaks. Raises ValueError for a role it does not know."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new of one branch of one request."""

    index: int
    """The prompt's place in the list given to `stream`."""
    branch: int
    token_ids: tuple[int, ...]
    text: str
    result: RequestResult | None = None
    """With the last piece of a request."""


class Engine:
    """A scheduler, an executor and a clock."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        clock: Clock | None = None,
        tokenizer: Tokenizer | None = None,
        seed: int = 0,
        watch: Watch | None = None,
    ) -> None:
        """`seed`: for requests whose parameters name none; request i then draws from seed + i."""
        self.scheduler = scheduler
        self.clock = clock or WallClock()
        self.tokenizer = tokenizer
        self.seed = seed
        self.loop = StepLoop(scheduler, executor, self.clock, watch=watch)
        self.extra_keys = NO_EXTRA_KEYS
        """Of requests that name none; the active adapter is part of them."""
        self.on_finish: Callable[[Request], None] | None = None
        """Called with every request that `generate` or `stream` finished."""
        self._indices = count()

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams],
        *,
        priorities: Sequence[int] | None = None,
        extra_keys: ExtraKeys | None = None,
    ) -> list[RequestResult]:
        """Results in the order of the prompts. Raises ValueError where there are not as many parameters as prompts."""
        requests = self._submit_all(prompts, params, priorities, extra_keys)
        self._run_until(requests)
        return [result_of(request, self.scheduler.outcomes.stop) for request in requests]

    def stream(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams],
        *,
        priorities: Sequence[int] | None = None,
        extra_keys: ExtraKeys | None = None,
    ) -> Iterator[Piece]:
        """Tokens as they come, several prompts interleaved; beams come when they are decided.

        A caller that walks away (closes the iterator) aborts what is unfinished.
        """
        requests = self._submit_all(prompts, params, priorities, extra_keys)
        told: dict[tuple[int, int], tuple[int, int]] = {}
        open_requests = dict(enumerate(requests))
        try:
            while open_requests:
                if any(request.state is not State.FINISHED for request in open_requests.values()):
                    self.loop.step()
                for place, request in list(open_requests.items()):
                    yield from self._news(place, request, told)
                    if request.state is State.FINISHED:
                        del open_requests[place]
        finally:
            for request in open_requests.values():
                self.abort(request)
            self._finish()

    def submit(
        self, prompt: Prompt, params: SamplingParams, priority: int = 0, extra_keys: ExtraKeys | None = None
    ) -> Request:
        """Queue one request; `step` moves it on. A prompt that makes no sense comes back finished, with its error."""
        index, now = next(self._indices), self.clock.now()
        if params.seed is None:
            params = replace(params, seed=self.seed + index)
        tokens, error = PackedTokens(b""), None
        try:
            tokens = PackedTokens.of(self._ids(prompt))
        except (ValueError, TypeError) as problem:
            error = str(problem)
        request = Request(
            index,
            tokens,
            params,
            now,
            priority=priority,
            extra_keys=self.extra_keys if extra_keys is None else extra_keys,
        )
        request.error = error
        self.scheduler.add(request, now)
        return request

    def step(self) -> list[Request]:
        """One step; returns the requests that finished since the last call."""
        if self.loop.has_work:
            self.loop.step()
        return self.scheduler.take_finished()

    def abort(self, request: Request) -> None:
        """Stop a request at once, wherever it is; its blocks are free, what it computed stays cached."""
        self.scheduler.abort(request, self.clock.now())

    def result(self, request: Request) -> RequestResult:
        """The result of a finished request."""
        return result_of(request, self.scheduler.outcomes.stop)

    def observe(self, observer: Observer) -> None:
        """Tell `observer` (a ledger) what happens to prefixes; results then say why their blocks hit or missed.

        Raises CacheInUse unless the cache is cold.
        """
        self.scheduler.observe(observer)

    def reload_weights(self, load: Callable[[], str]) -> None:
        """`load` puts new weights into the model and returns their version. Nothing computed with the old ones is used
        again; running requests keep the tokens they have and go on from those with the new weights."""
        self.scheduler.set_weights_version(load(), self.clock.now())

    def switch_adapter(self, switch: Callable[[], None], name: str | None, version: str | None = None) -> None:
        """`switch` merges another adapter into the model. Only its own cached blocks can hit from now on; those of
        others stay and hit again when they are switched back to, unless their content (`version`) changed.

        Raises CacheInUse while requests run: their K and V belong to the adapter they began with.
        """
        if self.scheduler.has_work:
            raise CacheInUse("requests are running under the present adapter: finish or abort them first")
        switch()
        self.extra_keys = replace(self.extra_keys, lora=name, lora_version=version)

    def _ids(self, prompt: Prompt) -> Sequence[int]:
        if not isinstance(prompt, str) and (not prompt or isinstance(prompt[0], int)):
            return prompt  # type: ignore[return-value]  # a list of ids
        if self.tokenizer is None:
            raise ValueError("this engine has no tokenizer: give token ids")
        if isinstance(prompt, str):
            try:
                prompt.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"the prompt is no valid text: {error.reason} at character {error.start}") from None
            return self.tokenizer.prompt(prompt)
        if not all(isinstance(turn, tuple | list) and len(turn) == 2 for turn in prompt):
            raise ValueError("a prompt is a text, a list of token ids, or a list of (role, content) pairs")
        return self.tokenizer.chat(prompt)  # type: ignore[arg-type]  # a list of pairs

    def _submit_all(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams],
        priorities: Sequence[int] | None,
        extra_keys: ExtraKeys | None,
    ) -> list[Request]:
        if isinstance(prompts, str):
            raise ValueError("give a list of prompts, not one text")
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        urgency = [0] * len(prompts) if priorities is None else list(priorities)
        for name, values in (("parameters", each), ("priorities", urgency)):
            if len(values) != len(prompts):
                raise ValueError(f"{len(values)} {name} were given for {len(prompts)} prompts")
        return [self.submit(*one, extra_keys=extra_keys) for one in zip(prompts, each, urgency, strict=True)]

    def _run_until(self, requests: Sequence[Request]) -> None:
        try:
            while any(request.state is not State.FINISHED for request in requests):
                self.loop.step()
        finally:
            for request in requests:
                self.abort(request)  # whoever is interrupted leaves nothing behind
            self._finish()

    def _finish(self) -> None:
        for request in self.scheduler.take_finished():
            if self.on_finish is not None:
                self.on_finish(request)

    def _news(self, place: int, request: Request, told: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Piece]:
        done = request.state is State.FINISHED
        if request.params.beam_width and not done:
            return
        branches = sorted(request.branches, key=lambda branch: branch.index)
        for branch in branches:
            tokens, chars = told.get((place, branch.index), (0, 0))
            text = self._safe_text(branch, done)
            last = done and branch is branches[-1]
            if len(branch.outputs) > tokens or len(text) > chars or last:
                told[place, branch.index] = len(branch.outputs), max(len(text), chars)
                result = self.result(request) if last else None
                yield Piece(place, branch.index, tuple(branch.outputs[tokens:]), text[chars:], result)

    def _safe_text(self, branch: Branch, done: bool) -> str:
        """The text so far, without an end that may still change: half a character, or the start of a stop string."""
        params = branch.request.params
        text = self.scheduler.outcomes.stop.text(params, branch.outputs)
        if done or not branch.live:
            return text
        hidden = max((n for stop in params.stop for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        return text[: len(text) - hidden].rstrip(UNFINISHED)
