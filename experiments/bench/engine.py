"""An engine as a contestant, and what its own machinery costs beside the model.

    step    schedule ─ integers of the batch ─ model and sampler ─ commit
            └──────── host: ours, one thread ───┘               └─ host

Host time is processor time of the thread that runs the loop, everything outside model and sampler: another process on
the machine makes it no longer. What prefix caching costs where nothing hits is the host time it adds, since the model
computes the same. The times of both are given beside it.

Knows nothing of goals or of other engines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any

import numpy as np

from experiments.errors import UserError
from model.sampling import SamplingParams, sample
from scheduler.engine import Engine
from scheduler.step import Outcome, Step
from scheduler.torch_executor import TorchExecutor

Prompts = Sequence[Sequence[int]]


def answer_of(num_tokens: int) -> SamplingParams:
    """Greedy, exactly so many tokens."""
    return SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True)


class Served:
    """An engine that is asked what `experiments.model_speed` asks, queue, cache and sampler included."""

    name = "pagelab"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def cold(self, prompt: Sequence[int]) -> float:
        """As `Contestant`."""
        self.engine.scheduler.manager.reset()
        return self._first_token(prompt, 0)

    def warm(self, prompt: Sequence[int], cached: int) -> float:
        """As `Contestant`. Raises UserError where the cache does not hold exactly `cached` tokens of the prompt."""
        self.cold(prompt[:cached])
        return self._first_token(prompt, cached)

    def decode(self, prompt: Sequence[int], batch_size: int, steps: int) -> float:
        """As `Contestant`; the prompts are the given one rotated, so that they share nothing."""
        self.engine.scheduler.manager.reset()
        turned = [[*prompt[i:], *prompt[:i]] for i in range(batch_size)]
        span: list[float] = []

        def watch(step: Step, outcome: Outcome, start: float, end: float) -> None:
            if len(step.decodes) == batch_size and not step.chunks:
                span[:] = [span[0] if span else start, end]

        self.engine.loop.watch = watch
        self.engine.generate(turned, answer_of(steps + 1))
        self.engine.loop.watch = None
        return (span[1] - span[0]) / steps

    def _first_token(self, prompt: Sequence[int], cached: int) -> float:
        (result,) = self.engine.generate([prompt], answer_of(1))
        if result.error is not None or result.hit_tokens != cached:
            raise UserError(
                f"{cached} tokens of the prompt should be cached, {result.hit_tokens} are ({result.error}): "
                "cached_tokens must be whole blocks, num_blocks must hold the prompt, and the allocator must share"
            )
        assert result.ttft is not None
        return result.ttft


class Stopwatch:
    """Processor time that this thread spent in what it wraps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        def timed(*arguments: Any) -> Any:
            start = thread_time()
            try:
                return function(*arguments)
            finally:
                self.seconds += thread_time() - start

        return timed


@dataclass(frozen=True, slots=True)
class Cost:
    """One run of some requests."""

    seconds: float
    """First step to last, on the engine's clock."""
    host: float
    """Processor seconds outside model and sampler."""
    steps: int
    output_tokens: int
    hit_tokens: int


class _Timed:
    """A runner under a stopwatch."""

    def __init__(self, runner: Any, stopwatch: Stopwatch) -> None:
        self.run = stopwatch.around(runner.run)


def cost_of(engine: Engine, prompts: Prompts, output_tokens: int) -> Cost:
    """Answer prompts that arrive at once, and tell apart where the time went."""
    executor = engine.loop.executor
    assert isinstance(executor, TorchExecutor)
    stopwatch = Stopwatch()
    runner, sampler = executor.runner, executor.sample
    executor.runner, executor.sample = _Timed(runner, stopwatch), stopwatch.around(sample)
    before = engine.scheduler.num_steps
    start, processor = engine.clock.now(), thread_time()
    try:
        results = engine.generate(prompts, answer_of(output_tokens))
    finally:
        seconds, processor = engine.clock.now() - start, thread_time() - processor
        executor.runner, executor.sample = runner, sampler
    return Cost(
        seconds,
        processor - stopwatch.seconds,
        engine.scheduler.num_steps - before,
        sum(result.output_tokens for result in results),
        sum(result.hit_tokens for result in results),
    )


def cost_without_hits(
    sharing: Engine,
    plain: Engine,
    vocab_size: int,
    num_prompts: int,
    prompt_tokens: int,
    output_tokens: int,
    rounds: int,
) -> tuple[Cost, Cost]:
    """(with prefix caching, without) on prompts of random tokens, new ones each round, both in turns.

    The pool of `sharing` fills and then evicts as it goes. Of `rounds` after one to warm up, the least of each figure.
    """
    draw = np.random.default_rng(0)
    shared: list[Cost] = []
    alone: list[Cost] = []
    turns = [(sharing, shared), (plain, alone)]
    for turn in range(rounds + 1):
        prompts = draw.integers(0, vocab_size, (num_prompts, prompt_tokens)).tolist()
        for engine, costs in turns:
            cost = cost_of(engine, prompts, output_tokens)
            if turn:
                costs.append(cost)
        turns.reverse()
    return best_of(shared), best_of(alone)


def best_of(costs: Sequence[Cost]) -> Cost:
    """The least time and host time of runs that did the same."""
    first = costs[0]
    return Cost(
        min(cost.seconds for cost in costs),
        min(cost.host for cost in costs),
        first.steps,
        first.output_tokens,
        max(cost.hit_tokens for cost in costs),
    )
