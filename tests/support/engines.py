"""Engines over the fake model, small enough to be starved."""

from __future__ import annotations

from typing import Any

from cache.allocator.base import Allocator
from cache.allocator.hash_chain import HashChain
from cache.allocator.naive import Naive
from cache.allocator.radix import Radix
from cache.evictor.lru import Lru
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from scheduler.checks import Limits
from scheduler.clock import SimulatedClock
from scheduler.engine import Engine
from scheduler.order.fcfs import Fcfs
from scheduler.preemption.recompute import Recompute
from scheduler.preemption.swap import Swap
from scheduler.scheduler import Scheduler
from scheduler.step import Outcome, Step
from scheduler.stopping import StopRules
from scheduler.torch_executor import TorchExecutor
from scheduler.victim.last import Last
from support.fake_model import FakeRunner, FakeStore

PLENTY = 4096


class Ticking:
    """An executor that takes one second per step, and checks the books after each."""

    def __init__(self, executor: Any, clock: SimulatedClock) -> None:
        self.executor = executor
        self.clock = clock
        self.steps: list[Step] = []

    def execute(self, step: Step, until: float) -> Outcome:
        self.steps.append(step)
        outcome = self.executor.execute(step, until)
        self.clock.advance(1.0)
        return outcome


def letters(ids: Any) -> str:
    """Token ids as text: one letter each, so that stop strings can be read off."""
    return "".join(chr(97 + i % 26) for i in ids)


class LetterTokenizer:
    """The inverse of `letters`."""

    def prompt(self, text: str) -> list[int]:
        return [ord(c) - 97 for c in text]

    def chat(self, messages: Any) -> list[int]:
        for role, _ in messages:
            if role not in ("system", "user", "assistant"):
                raise ValueError(f"unknown role {role!r}")
        return [i for _, content in messages for i in self.prompt(content)]


def fake_engine(
    num_blocks: int = PLENTY,
    block_size: int = 4,
    *,
    caching: bool = True,
    host_blocks: int | None = None,
    order: Any = None,
    victim: Any = None,
    eos_ids: tuple[int, ...] = (),
    watermark: float = 0.0,
    evictor: Any = None,
    max_model_len: int = 512,
    radix: bool = False,
    partial_reuse: bool = False,
    **options: Any,
) -> Engine:
    """`host_blocks`: preempt by swap to so many; None: by recompute. `partial_reuse` means `radix`."""
    allocator: Allocator
    if not caching:
        allocator = Naive(num_blocks, block_size)
    elif radix or partial_reuse:
        allocator = Radix(num_blocks, block_size, BuiltinHash(), evictor or Lru(), partial_reuse)
    else:
        allocator = HashChain(num_blocks, block_size, BuiltinHash(), evictor or Lru())
    manager = CacheManager(allocator, watermark)
    store = FakeStore(num_blocks, block_size, host_blocks or 0)
    runner = FakeRunner(store, max_model_len=max_model_len)
    clock = SimulatedClock()
    scheduler = Scheduler(
        manager,
        order or Fcfs(),
        victim or Last(),
        Recompute() if host_blocks is None else Swap(host_blocks),
        limits=Limits(runner.max_model_len, runner.vocab_size),
        stop=StopRules(eos_ids, letters),
        **options,
    )
    executor = Ticking(TorchExecutor(runner, store, block_size), clock)
    return Engine(scheduler, executor, clock, LetterTokenizer())
