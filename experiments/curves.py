"""Hit rate against pool size: LRU exactly and at once, the optimum, the ceiling, and any other policy from samples.

    python -m experiments.curves workload=mooncake block_size=512 'policies=[fifo,lfu]'

LRU comes from stack distances (`experiments.stack_distance`), exactly what a replay counts at every pool size; Belady
from a replay at each size asked for, blocks of running requests pinned as ever. Other policies are replayed over
samples of the workload: what a policy gains on LRU within a sample is added to LRU's exact rate, which takes out most
of what makes one sample differ from another. `error` is the standard error of that over the samples; `sample_bias` is
how far the samples' own LRU lies off the exact one: the error there would be without the correction. `measured_error`
is the distance to a whole replay at the sizes where one was made to check. Pools or workloads too small for a sample
are replayed whole.

Accounting as in `experiments.replay`; knows nothing of how a policy works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from math import inf, sqrt
from statistics import mean, stdev
from time import perf_counter
from typing import TYPE_CHECKING, Any

import hydra
import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig

from cache.manager import CacheManager
from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.lru_sizes import Point, lru_curve, lru_points
from experiments.options import chosen_names, listed, with_options
from experiments.pool import resolve_num_blocks
from experiments.replay import checked_block_size, replay, workload_identity
from experiments.sampling import Sampling
from experiments.workload.base import Request, Workload
from experiments.workload.kept import Kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

LINE_POINTS = 240
"""Points of the LRU line, in equal steps of the logarithm of the pool size."""


class Curves:
    """One workload at one block size; every method gives rows of the result table."""

    def __init__(self, workload: Workload, block_size: int, cfg: DictConfig) -> None:
        self.requests: Sequence[Request] = list(workload)
        if not self.requests:
            raise UserError("the workload has no requests: check workload.path and workload.limit")
        self.workload = workload
        self.block_size = block_size
        self.cfg = cfg

    def lru(self, sizes: Sequence[float]) -> list[Row]:
        """LRU at the sizes asked for."""
        return [self._row("lru", "exact", point) for point in lru_points(self.requests, self.block_size, sizes)]

    def lru_line(self) -> list[Row]:
        """LRU from the smallest pool that serves every request to the smallest that reaches the ceiling."""
        curve = lru_curve(self.requests, self.block_size, inf)
        hits, start = curve.hit_blocks(), max(curve.valid_from, 1)
        sizes = np.unique(np.geomspace(start, max(len(hits) - 1, start), LINE_POINTS).round().astype(int))
        return [
            {
                "num_blocks": int(size),
                "pool_tokens": int(size) * self.block_size,
                "block_hit_rate": hit / curve.full_blocks if curve.full_blocks else 0.0,
                "token_hit_rate": hit * self.block_size / curve.prompt_tokens,
            }
            for size, hit in ((size, int(hits[min(size, len(hits) - 1)])) for size in sizes)
        ]

    def whole(self, policy: str, sizes: Sequence[float]) -> list[Row]:
        """A policy by replay of all requests at each size."""
        return [self._row(policy, "replay", self._replayed(policy, self.requests, size)) for size in sizes]

    def sampled(
        self, policy: str, sizes: Sequence[float], sampling: Sampling, rate: float, count: int, checks: int = 0
    ) -> list[Row]:
        """A policy from `count` samples, each a share `rate` of the workload; too small pools by whole replay.

        `checks`: at so many sizes, spread evenly, the sampled rate is compared with a whole replay.
        """
        small = [size for size in sizes if rate * count >= 1 or not sampling.suits(size, rate)]
        rows = self.whole(policy, small)
        large = [size for size in sizes if size not in small]
        gains: dict[float, list[float]] = {size: [] for size in large}
        biases: dict[float, list[float]] = {size: [] for size in large}
        exact = dict(zip(large, lru_points(self.requests, self.block_size, large), strict=True))
        for index in range(count if large else 0):
            part = sampling.pick(rate, index, self.cfg.seed)
            pools = [sampling.pool(size, rate) for size in large]
            for size, pool, base in zip(large, pools, lru_points(part, self.block_size, pools), strict=True):
                gains[size].append(self._replayed(policy, part, pool).block_hit_rate - base.block_hit_rate)
                biases[size].append(abs(base.block_hit_rate - exact[size].block_hit_rate))
        for size in large:
            point, spread = exact[size], gains[size]
            ceiling = point.ceiling_blocks / point.full_blocks
            rate_now = min(max(point.block_hit_rate + mean(spread), 0.0), ceiling)
            row = self._row(policy, "sampled", point, rate_now)
            row["error"] = stdev(spread) / sqrt(count) if count > 1 else None
            rows.append(row | {"sample_bias": mean(biases[size])})
        for index in {round(len(large) * (i + 0.5) / checks - 0.5) for i in range(checks if large else 0)}:
            (check,) = self.whole(policy, large[index : index + 1])
            row = rows[len(small) + index]
            row["measured_error"] = abs(row["block_hit_rate"] - check["block_hit_rate"])
        return sorted(rows, key=lambda row: float(row["num_blocks"]))

    def _replayed(self, policy: str, requests: Sequence[Request], num_blocks: float) -> Point:
        cfg = with_options(self.cfg, {"num_blocks": num_blocks, "block_size": self.block_size}, evictor=policy)
        metrics = replay(Kept(requests, self.workload), CacheManager(instantiate(cfg.allocator)))
        keys = ("full_blocks", "prompt_tokens", "hit_blocks", "ceiling_hit_blocks")
        return Point(num_blocks, metrics["requests"] - metrics["refused"], *(metrics[key] for key in keys))

    def _row(self, policy: str, how: str, point: Point, block_hit_rate: float | None = None) -> Row:
        rate = point.block_hit_rate if block_hit_rate is None else block_hit_rate
        hit_blocks = rate * point.full_blocks
        return {
            "policy": policy,
            "how": how,
            "num_blocks": point.num_blocks,
            "pool_tokens": point.num_blocks * self.block_size,
            "block_hit_rate": rate,
            "token_hit_rate": hit_blocks * self.block_size / point.prompt_tokens,
            "ceiling_block_hit_rate": point.ceiling_blocks / point.full_blocks if point.full_blocks else 0.0,
            "ceiling_token_hit_rate": point.ceiling_blocks * self.block_size / point.prompt_tokens,
            "error": 0.0,
            "sample_bias": 0.0,
            "measured_error": None,
            "refused": len(self.requests) - point.served,
        }


def curves_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/curves.yaml`."""
    workload: Workload = instantiate(cfg.workload)
    block_size = checked_block_size(cfg.block_size)
    rate, count, checks = _checked_sample(**cfg.sample)
    policies = chosen_names("evictor", cfg.policies)
    curves = Curves(workload, block_size, cfg)
    kept = Kept(curves.requests, workload)
    sizes = sorted({resolve_num_blocks(asked, block_size, kept) for asked in listed(cfg.num_blocks)})
    smallest = min(-(-len(request.tokens) // block_size) for request in curves.requests)
    small, sizes = [size for size in sizes if size < smallest], [size for size in sizes if size >= smallest]
    if not sizes:
        raise UserError(f"no pool of num_blocks holds even the smallest request, which needs {smallest} blocks.")
    if small:
        print(f"note: left out, smaller than any request: {', '.join(map(str, small))} blocks", file=sys.stderr)
    start = perf_counter()
    rows, line = curves.lru(sizes), curves.lru_line()
    lru_seconds = perf_counter() - start
    sampling = Sampling(curves.requests, block_size)
    for policy in policies:
        if policy == "belady":
            rows += curves.whole(policy, sizes)
        elif policy != "lru":
            rows += curves.sampled(policy, sizes, sampling, rate, count, checks)
        log({"policies_done": policies.index(policy) + 1, "rows": len(rows)})
    errors = [row["error"] for row in rows if row["how"] == "sampled" and row["error"] is not None]
    metrics = {
        "workload_fingerprint": workload.fingerprint(),
        "granularity": workload.granularity,
        "block_size": block_size,
        "evictor": " ".join(dict.fromkeys(row["policy"] for row in rows)),
        "num_blocks": " ".join(f"{size:.0f}" for size in sizes),
        "seed": cfg.seed,
        "requests": len(curves.requests),
        "prompt_tokens": sum(len(request.tokens) for request in curves.requests),
        "blocks_to_reach_the_ceiling": line[-1]["num_blocks"],
        "ceiling_token_hit_rate": rows[len(sizes) - 1]["ceiling_token_hit_rate"],
        "sample_rate": rate,
        "samples": count,
        "largest_error": max(errors, default=0.0),
        "largest_sample_bias": max(row["sample_bias"] for row in rows),
        "largest_measured_error": max((row["measured_error"] or 0.0 for row in rows), default=0.0),
        "lru_seconds": lru_seconds,
        "seconds": perf_counter() - start,
    }
    _show(rows)
    return Result(metrics, {"curves": rows, "lru_line": line}, partial(_draw, rows, line))


def _checked_sample(rate: object, count: object, checks: object) -> tuple[float, int, int]:
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not 0 < rate <= 1:
        raise UserError(f"sample.rate={rate} must lie in (0, 1]; 1 replays everything.")
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UserError(f"sample.count={count} must be a positive number of samples.")
    if not isinstance(checks, int) or isinstance(checks, bool) or checks < 0:
        raise UserError(f"sample.checks={checks} must be a number of pool sizes, or 0.")
    return float(rate), count, checks


def _show(rows: Sequence[Row]) -> None:
    from experiments.show import show_table

    sizes = list(dict.fromkeys(row["num_blocks"] for row in rows))
    body = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = {row["num_blocks"]: row for row in rows if row["policy"] == policy}
        body.append([policy, *(_cell(mine[size]) for size in sizes)])
    ceilings = {row["num_blocks"]: row["ceiling_token_hit_rate"] for row in rows}
    body.append(["infinite cache", *(f"{ceilings[size]:.1%}" for size in sizes)])
    title = "token hit rate by pool size in blocks (~ from samples, ± standard error)"
    show_table(title, ["policy", *(f"{size:,.0f}" for size in sizes)], body)


def _cell(row: Row) -> str:
    if row["how"] != "sampled":
        return f"{row['token_hit_rate']:.1%}"
    error = "" if row["error"] is None else f" ±{100 * row['error']:.1f}"
    return f"~{row['token_hit_rate']:.1%}{error}"


def _draw(rows: Sequence[Row], line: Sequence[Row], series: Sequence[Row], metrics: Row) -> dict[str, Figure]:
    from experiments.plots.curves import draw_curves

    return draw_curves(rows, line)


@hydra.main(version_base="1.3", config_path="../conf", config_name="curves")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, curves_job, workload_identity)


if __name__ == "__main__":
    cli(main)
