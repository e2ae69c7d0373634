"""Instant replay: one request at a time, from a cold cache, through the real match, allocate, promote and free.

    python -m experiments.replay workload=mooncake evictor=lru block_size=512 num_blocks=10000
    python -m experiments.replay sweep=quick

Accounting: a prompt of L tokens has floor(L/B) full blocks, of which at most floor((L-1)/B) may hit; output tokens are
not inserted; compulsory misses count; a request that needs more blocks than the pool has is refused, counted, and
changes nothing.

Knows nothing of time: arrivals are only handed to the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from cache.access import Access
from cache.future import Future
from cache.ledger import Ledger
from cache.manager import CacheManager
from cache.observer import Observer
from cache.sequence import Sequence
from experiments.ceiling import InfiniteCache
from experiments.cli import cli
from experiments.collector import seldom_collected
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.live.open import requests_of, watching
from experiments.live.watcher import Watcher
from experiments.pool import resolve_num_blocks
from experiments.workload.base import Request, Workload
from experiments.workload.kept import kept_workload

Row = dict[str, Any]

SAMPLE_STEP = 1.02
"""The time series has a row whenever the number of requests has grown by 2 %: some 250 rows for 10,000 of them."""


def replay(
    workload: Workload,
    manager: CacheManager,
    log: Callable[[Row], None] = lambda row: None,
    observer: Observer | None = None,
    watcher: Watcher | None = None,
) -> Row:
    """Replay a workload through a cold manager; returns the metrics, hands rows of the time series to `log`.

    Rates: `token_hit_rate` = hit tokens / prompt tokens, `block_hit_rate` = hit blocks / full blocks,
    `request_hit_rate` = requests with at least one hit / requests served. `ceiling_*` is what an infinite cache would
    have hit on the requests served; `recomputed_prefix_tokens_per_request` is the difference, in tokens per request.
    `partial_*` (with `allocator.partial_reuse`) is what was copied below the block size; no rate includes it.
    `observer` (a ledger) hears what happens to every prefix; `watcher`: whoever looks at the run while it runs.
    Raises UserError where the workload is empty or no request fits.
    """
    if watcher is not None:
        watcher.begin(manager)
    allocator, size = manager.allocator, manager.block_size
    show_future(workload, manager)
    known, series = _known_blocks(manager, observer), Series(manager, log)
    served = refused = prompt_tokens = full_blocks = hit_blocks = hit_requests = ceiling_blocks = peak = 0
    smallest: float = inf
    start = perf_counter()
    for index, request in enumerate(workload):
        seq = Sequence(request.tokens, access_of(request, index), request.extra_keys)
        if not manager.fits(seq):
            refused += 1
            smallest = min(smallest, manager.num_blocks_for(seq.num_tokens))
            if watcher is not None:
                watcher.finished()
            continue
        manager.allocate(seq)
        length, hits = seq.num_tokens, seq.num_hit_blocks
        peak = max(peak, allocator.num_in_use)
        served += 1
        prompt_tokens += length
        full_blocks += length // size
        hit_blocks += hits
        hit_requests += hits > 0
        ceiling_blocks += min(known(seq), (length - 1) // size)
        manager.promote_to_immutable(seq, length)
        series.sample(index, request.arrival, prompt_tokens, hit_blocks * size)
        if watcher is not None:
            watcher.matched(request.tokens, length, hits)
            watcher.finished()
        manager.free(seq)
    seconds = perf_counter() - start
    series.last_row()
    if not served:
        _explain_nothing_served(refused, smallest, manager)
    partial = {
        "partial_hits": allocator.stats.partial_hits,
        "partial_hit_tokens": allocator.stats.partial_hit_tokens,
    }
    return (partial if allocator.partial_reuse else {}) | {
        "requests": served + refused,
        "refused": refused,
        "prompt_tokens": prompt_tokens,
        "full_blocks": full_blocks,
        "hit_blocks": hit_blocks,
        "hit_tokens": hit_blocks * size,
        "block_hit_rate": hit_blocks / full_blocks if full_blocks else 0.0,
        "token_hit_rate": hit_blocks * size / prompt_tokens,
        "request_hit_rate": hit_requests / served,
        "recomputed_prefix_tokens_per_request": (ceiling_blocks - hit_blocks) * size / served,
        "evictions": allocator.stats.evictions,
        "unreachable_blocks": allocator.count_unreachable(),
        "peak_blocks_in_use": peak,
        "ceiling_hit_blocks": ceiling_blocks,
        "ceiling_block_hit_rate": ceiling_blocks / full_blocks if full_blocks else 0.0,
        "ceiling_token_hit_rate": ceiling_blocks * size / prompt_tokens,
        "seconds": seconds,
        "requests_per_second": served / seconds,
        "blocks_per_second": full_blocks / seconds,
    }


def access_of(request: Request, index: int) -> Access:
    """What a policy may know of a request."""
    return Access(
        index,
        request.arrival,
        len(request.tokens),
        request.session,
        request.turn,
        request.category,
        request.priority,
        request.retention,
        request.last_turn,
    )


def _known_blocks(manager: CacheManager, observer: Observer | None) -> Callable[[Sequence], int]:
    """How many leading blocks of a prompt just looked up an infinite cache holds; a ledger knows it already."""
    if observer is not None:
        manager.observe(observer)
    if isinstance(observer, Ledger):
        return lambda seq: observer.num_known
    infinite = InfiniteCache()
    return lambda seq: infinite.observe(seq.root or b"", seq.prompt, manager.block_size)


class Series:
    """The time series, sampled: cumulative and windowed hit rate, water level, evictions, ages in requests."""

    def __init__(self, manager: CacheManager, log: Callable[[Row], None]) -> None:
        self._manager, self._log = manager, log
        self._next = 0.0
        self._last: tuple[int, float, int, int] | None = None
        self._logged: tuple[int, float, int, int] | None = None
        self._level: tuple[int, int, float] = (0, 0, inf)
        self._before = (0, 0, 0, 0, 0, 0)

    def sample(self, index: int, time: float, prompt_tokens: int, hit_tokens: int) -> None:
        """Log a row if one is due; called while the request still holds its blocks."""
        self._last = index, time, prompt_tokens, hit_tokens
        allocator = self._manager.allocator
        self._level = allocator.num_in_use, allocator.num_idle, allocator.num_free
        if index >= self._next:
            self._next = (index + 1) * SAMPLE_STEP
            self._row(index, time, prompt_tokens, hit_tokens)

    def last_row(self) -> None:
        """Log the end of the run, unless that was the latest row anyway."""
        if self._last is not None and self._last != self._logged:
            self._row(*self._last)

    def _row(self, index: int, time: float, prompt_tokens: int, hit_tokens: int) -> None:
        self._logged = index, time, prompt_tokens, hit_tokens
        stats = self._manager.allocator.stats
        now = (prompt_tokens, hit_tokens, stats.evictions, stats.evicted_age, stats.hits, stats.hit_age)
        prompt, hit, evictions, evicted_age, hits, hit_age = (
            new - old for new, old in zip(now, self._before, strict=True)
        )
        self._before = now
        used, cached, free = self._level
        self._log(
            {
                "request": index,
                "time": time,
                "hit_rate": hit_tokens / prompt_tokens,
                "window_hit_rate": hit / prompt if prompt else None,
                "used_blocks": used,
                "cached_blocks": cached,
                "free_blocks": None if free == inf else int(free),
                "evictions": stats.evictions,
                "age_at_hit": hit_age / hits if hits else None,
                "age_at_eviction": evicted_age / evictions if evictions else None,
            }
        )


def show_future(workload: Workload, manager: CacheManager) -> None:
    """Tell a policy that needs it which prefixes come; the others nothing."""
    evictor, size = manager.allocator.evictor, manager.block_size
    if evictor is None or not evictor.needs_future:
        return
    evictor.foresee(
        Future(
            (
                request.extra_keys.encode(manager.weights_version),
                request.tokens.contents(size),
                (len(request.tokens) - 1) // size,
            )
            if manager.num_blocks_for(len(request.tokens)) <= manager.allocator.num_blocks
            else None
            for request in workload
        )
    )


def _explain_nothing_served(refused: int, smallest: float, manager: CacheManager) -> None:
    if not refused:
        raise UserError("the workload has no requests: check workload.path and workload.limit")
    raise UserError(
        f"the pool is smaller than any request: num_blocks={manager.allocator.num_blocks} of {manager.block_size} "
        f"tokens, but the smallest of {refused} requests needs {smallest} blocks. Raise num_blocks "
        f"(num_blocks={10 * int(smallest)}), or leave it unbounded (num_blocks=inf)."
    )


def replay_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/replay.yaml`: build what the yaml names, replay, and say under which conditions."""
    from experiments.ledger_result import with_reasons
    from experiments.plots.series import draw_series

    workload = kept_workload(cfg.workload)
    block_size = checked_block_size(cfg.block_size)
    cfg = cfg.copy()
    asked, cfg.num_blocks = cfg.num_blocks, resolve_num_blocks(cfg.num_blocks, block_size, workload)
    manager = CacheManager(instantiate(cfg.allocator))
    conditions = {
        "workload_fingerprint": workload.fingerprint(),
        "granularity": workload.granularity,
        "block_size": block_size,
        "num_blocks": cfg.num_blocks,
        "pool": str(asked),
        "pool_tokens": cfg.num_blocks * block_size,
        "seed": cfg.seed,
    }
    observer: Observer = instantiate(cfg.ledger)
    title = f"replay {conditions['pool']} pool, {block_size} tokens per block"
    with watching(cfg, title, lambda: requests_of(workload)) as watcher, seldom_collected():
        metrics = conditions | replay(workload, manager, log, observer, watcher)
    return with_reasons(Result(metrics, draw=draw_series), observer)


def workload_identity(cfg: DictConfig) -> Row:
    """What the numbers depend on that the config does not say: the contents of a trace."""
    return {"workload_fingerprint": instantiate(cfg.workload).fingerprint()}


def checked_block_size(asked: object) -> int:
    """Tokens per block. Raises UserError for anything but a positive integer."""
    if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
        raise UserError(f"block_size={asked} is no block size: give a positive number of tokens (block_size=16).")
    return asked


@hydra.main(version_base="1.3", config_path="../conf", config_name="replay")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, replay_job, workload_identity)


if __name__ == "__main__":
    cli(main)
