"""Requests whose fate can be read off by hand, and three of them that outgrow their pool."""

from __future__ import annotations

from typing import Any

from model.sampling import SamplingParams
from scheduler.request import Request
from support.engines import fake_engine

ONE = SamplingParams(max_tokens=1, temperature=0)
LONG = list(range(32))


def short(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0)


def finish(engine: Any) -> None:
    """Step until nothing is left, books checked after each."""
    while engine.scheduler.has_work:
        engine.step()
        engine.scheduler.check_integrity()


def crowded(**options: Any) -> tuple[Any, list[Request]]:
    """Three requests of 8, 12 and 4 prompt tokens that outgrow a pool of 9 blocks."""
    engine = fake_engine(9, caching=options.pop("caching", False), max_num_seqs=4, **options)
    lengths = (8, 12, 4)
    return engine, [engine.submit([i] * length, short(20)) for i, length in enumerate(lengths)]
