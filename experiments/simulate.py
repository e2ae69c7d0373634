"""Timed simulation: the real scheduler and cache over a trace, on the clock of a named GPU and model.

    python -m experiments.simulate workload=mooncake gpu=h200 model=llama3-8b evictor=lru

Requests arrive when the trace says, are scheduled as an engine would schedule them, and every step takes the time of a
roofline model. Output tokens are made up (as many as the trace says) and, unlike in an instant replay, fill blocks.

Knows nothing of what steps cost or how they are chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from cache.manager import CacheManager
from cache.observer import Observer
from experiments.ceiling import InfiniteCache
from experiments.cli import cli
from experiments.collector import seldom_collected
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.latency import Row, goodput, latencies, request_row
from experiments.live.open import requests_of, watching
from experiments.live.served import watched
from experiments.live.watcher import Watcher
from experiments.load import arrival_rate, overload
from experiments.pool import resolve_num_blocks
from experiments.replay import checked_block_size, workload_identity
from experiments.sampler import Sampler
from experiments.workload.base import Workload
from model.sampling import SamplingParams
from scheduler.checks import Limits
from scheduler.clock import SimulatedClock
from scheduler.cost import ModelShape, Roofline
from scheduler.loop import StepLoop
from scheduler.request import Request
from scheduler.scheduler import Scheduler
from scheduler.simulated import Cost, SimulatedExecutor, made_up_tokens

SMALLEST_BLOCK = 16
SUMMED = ("recomputed_tokens", "rehit_tokens", "swapped_in_tokens", "inflight_waits")

LATEST = 1e9
"""Seconds after the first request, 31 years; a double still tells a microsecond there."""


def simulate(
    arrivals: Iterable[Request],
    scheduler: Scheduler,
    cost: Cost,
    slo: dict[str, float],
    log: Callable[[Row], None] = lambda row: None,
    sample_every: float = 10.0,
    jump: bool = True,
    watcher: Watcher | None = None,
) -> tuple[Row, list[Row]]:
    """Serve all arrivals; returns (metrics, one row per request in order of arrival). Times are simulated seconds.

    `scheduler` foretells tokens (`made_up_tokens`). Raises UserError where there are no requests or none can run.
    """
    clock = SimulatedClock()
    sampler = Sampler(scheduler, log, sample_every)
    loop = StepLoop(
        scheduler, SimulatedExecutor(cost, clock), clock, arrivals, watched(sampler.watch, scheduler, watcher), jump
    )
    start, rows = perf_counter(), list[Row]()
    with seldom_collected():
        for request in loop.run():
            rows.append(request_row(request))
            sampler.finished(request)
    seconds = perf_counter() - start
    sampler.row(clock.now())
    rows.sort(key=lambda row: row["request"])
    served = [row for row in rows if row["error"] is None]
    if not served:
        _explain_nothing_served(rows)
    prompt_tokens, output_tokens, hit_tokens = (
        sum(row[name] for row in served) for name in ("prompt_tokens", "output_tokens", "hit_tokens")
    )
    span = clock.now() - rows[0]["arrival"]
    metrics = {
        "requests": len(rows),
        "failed": len(rows) - len(served),
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "hit_tokens": hit_tokens,
        "token_hit_rate": hit_tokens / prompt_tokens,
        "request_hit_rate": sum(row["hit_tokens"] > 0 for row in served) / len(served),
        "preemptions": scheduler.num_preemptions,
        **{name: sum(row[name] for row in rows) for name in SUMMED},
        **latencies(rows),
        **goodput(rows, slo, span),
        "simulated_seconds": span,
        "arrivals_per_simulated_second": arrival_rate(rows),
        "requests_per_simulated_second": len(served) / span,
        "output_tokens_per_simulated_second": output_tokens / span,
        "peak_blocks_in_use": sampler.peak,
        "mean_blocks_in_use": sampler.mean,
        "peak_waiting": sampler.peak_waiting,
        "peak_running": sampler.peak_running,
        "steps": sampler.steps,
        "scheduling_rounds": scheduler.num_steps,
        "evictions": scheduler.manager.allocator.stats.evictions,
        **partial_reuse(scheduler, served),
        "seconds": seconds,
        "requests_per_second": len(rows) / seconds,
    }
    return metrics, rows


def partial_reuse(scheduler: Scheduler, served: Sequence[Row]) -> Row:
    """What was copied below the block size, where the allocator does that; no hit rate includes it."""
    if not scheduler.manager.allocator.partial_reuse:
        return {}
    return {"partial_hit_tokens": sum(row["partial_hit_tokens"] for row in served)}


def arrivals_of(workload: Workload, rate: float | None = None) -> Iterator[Request]:
    """The workload as requests for a scheduler. `rate`: mean requests per second to stretch the arrivals to.

    Raises UserError for a rate that is no positive number, for a workload whose arrivals have no rate to change, and
    for arrivals so late that a step no longer moves the clock.
    """
    scale = 1.0
    if rate is not None:
        if not isinstance(rate, int | float) or not 0 < rate < inf:
            raise UserError(f"rate={rate} is no rate: give a positive number of requests per second (rate=2.5).")
        times = [request.arrival for request in workload]
        if len(times) < 2 or max(times) == min(times):
            raise UserError("rate= needs requests that arrive at different times; this workload has none.")
        scale = (len(times) - 1) / (max(times) - min(times)) / rate
    first: float | None = None
    for index, request in enumerate(workload):
        first = request.arrival if first is None else first
        arrival = (request.arrival - first) * scale
        if abs(arrival) > LATEST:
            raise UserError(
                f"request {index} arrives {abs(arrival):.3g} s after the first, {abs(arrival) / 3.15576e7:.3g} years: "
                "arrivals are seconds. Are these in milliseconds or nanoseconds?"
            )
        yield Request(
            index,
            request.tokens,
            SamplingParams(max_tokens=max(1, request.num_output_tokens), temperature=0, ignore_eos=True),
            arrival,
            extra_keys=request.extra_keys,
            session=request.session,
            turn=request.turn,
            category=request.category,
        )


def simulate_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/simulate.yaml`: build what the yaml names, simulate, and say under which conditions."""
    from experiments.ledger_result import with_reasons
    from experiments.plots.serving import draw_serving

    _check(cfg)
    workload = workload_of(cfg)
    cfg = cfg.copy()
    asked = cfg.num_blocks
    cfg.block_size = block_size_for(cfg, workload)
    if cfg.model.shape is None:
        raise UserError("this model has weights but no shape to simulate: write one as conf/model/llama3-8b.yaml does.")
    shape: ModelShape = instantiate(cfg.model.shape)
    try:
        cost = Roofline(instantiate(cfg.gpu), shape, cfg.block_size)
        if asked is None:
            cfg.num_blocks = cost.num_blocks(cfg.memory_share)
        else:
            cfg.num_blocks = resolve_num_blocks(asked, cfg.block_size, workload)
        manager = online_manager(cfg)
        make_scheduler = instantiate(cfg.scheduler)
        scheduler = make_scheduler(manager=manager, limits=Limits(shape.max_model_len), foretell=made_up_tokens)
    except ValueError as error:
        raise UserError(str(error)) from None
    observer: Observer = instantiate(cfg.ledger)
    scheduler.observe(observer)
    conditions = {
        "workload_fingerprint": workload.fingerprint(),
        "granularity": workload.granularity,
        "block_size": cfg.block_size,
        "num_blocks": cfg.num_blocks,
        "pool": "what fits the GPU" if asked is None else str(asked),
        "pool_tokens": cfg.num_blocks * cfg.block_size,
        "seed": cfg.seed,
    }
    arrivals = arrivals_of(workload, cfg.rate)
    slo, title = dict(cfg.slo), f"simulate {shape.name} on {cfg.gpu.name}"
    with watching(cfg, title, lambda: requests_of(workload)) as watcher:
        metrics, rows = simulate(arrivals, scheduler, cost, slo, log, cfg.sample_every, cfg.jump, watcher)
    note = overload(rows, metrics["requests_per_simulated_second"])
    if note is not None:
        print(f"note: {note}", file=sys.stderr)
    metrics["ceiling_token_hit_rate"] = ceiling(workload, rows, cfg.block_size)
    return with_reasons(Result(conditions | metrics, {"requests": rows}, partial(draw_serving, rows)), observer)


def _check(cfg: DictConfig) -> None:
    if not 0 < cfg.memory_share <= 1:
        raise UserError(f"memory_share={cfg.memory_share} must lie in (0, 1]: it is a share of the GPU's memory.")
    for key, value in {"slo.ttft": cfg.slo.ttft, "slo.tpot": cfg.slo.tpot, "sample_every": cfg.sample_every}.items():
        if not value >= 0:
            raise UserError(f"{key}={value} must be 0 seconds or more.")


def ceiling(workload: Workload, rows: list[Row], block_size: int) -> float:
    """Token hit rate of an infinite cache that has every earlier prompt of those served, answers not counted."""
    infinite, hits, tokens = InfiniteCache(), 0, 0
    for request, row in zip(workload, rows, strict=True):
        if row["error"] is None:
            most = (len(request.tokens) - 1) // block_size
            hits += min(infinite.observe(request.extra_keys.encode(), request.tokens, block_size), most) * block_size
            tokens += len(request.tokens)
    return hits / tokens


def online_manager(cfg: DictConfig) -> CacheManager:
    """The cache that the yaml names. Raises UserError for a policy that must know the future."""
    manager = CacheManager(instantiate(cfg.allocator), cfg.watermark)
    if manager.allocator.evictor is not None and manager.allocator.evictor.needs_future:
        raise UserError(
            "this policy must be shown the future, which a timed run does not have: the order of its accesses depends "
            "on what it evicts. Compare against it in experiments.replay."
        )
    return manager


def workload_of(cfg: DictConfig) -> Workload:
    """The workload that the yaml names, cut to `max_requests`."""
    limits = {} if cfg.max_requests is None else {"limit": cfg.max_requests}
    workload: Workload = instantiate(cfg.workload, **limits)
    return workload


def block_size_for(cfg: DictConfig, workload: Workload) -> int:
    """What the yaml says, or what the workload can tell apart. Raises UserError for anything but a positive integer."""
    asked: Any = cfg.block_size
    return max(workload.granularity, SMALLEST_BLOCK) if asked is None else checked_block_size(asked)


def _explain_nothing_served(rows: list[Row]) -> None:
    if not rows:
        raise UserError("the workload has no requests: check workload.path, workload.limit and max_requests")
    raise UserError(f"none of {len(rows)} requests could be served; the first: {rows[0]['error']}")


@hydra.main(version_base="1.3", config_path="../conf", config_name="simulate")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, simulate_job, workload_identity)


if __name__ == "__main__":
    cli(main)
