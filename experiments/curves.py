"""Hit rate against pool size: LRU exactly and at once, the optimum, the ceiling, and any other policy from samples.

    python -m experiments.curves workload=mooncake block_size=512 'policies=[fifo,lfu]'

LRU comes from stack distances (`experiments.stack_distance`), exactly what a replay counts at every pool size; Belady
from a replay at each size asked for, blocks of running requests pinned as ever. Other policies are replayed over
samples of the workload: what a policy gains on LRU within a sample is added to LRU's exact rate, which takes out most
of what makes one sample differ from another (`sample_bias`: how far the samples' own LRU lies off the exact one). At a
size or two the policy is replayed whole as well. `error` is the larger of that measured error and two standard errors
over the samples; where the measured one exceeds a tolerance (plain LFU, whose room for newcomers does not shrink with a
sample, is such a case), or pools are too small for a sample, the policy is replayed whole at every size: error 0.

Accounting as in `experiments.replay`; knows nothing of how a policy works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from experiments.workload.given import Given

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

LINE_POINTS = 240
"""Points of the LRU line, in equal steps of the logarithm of the pool size."""


MOST_COLUMNS = 6
"""Pool sizes in the table on the screen; the record has all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How policies other than LRU and Belady are sampled."""

    rate: float = 0.1
    """Share of the workload in one sample; with rate x count = 1 or more everything is replayed whole."""
    count: int = 3
    checks: int = 1
    """Sizes at which a sampled policy is also replayed whole, to measure the error."""
    tolerance: float = 0.01
    """A measured error (of the block hit rate) above this discards the samples: the policy is replayed whole."""

    def __post_init__(self) -> None:
        """Raises UserError for a value out of range."""
        if not _number(self.rate) or not 0 < self.rate <= 1:
            raise UserError(f"sample.rate={self.rate} must lie in (0, 1]; 1 replays everything.")
        if not _number(self.count) or self.count != int(self.count) or self.count < 1:
            raise UserError(f"sample.count={self.count} must be a positive number of samples.")
        if not _number(self.checks) or self.checks != int(self.checks) or self.checks < 0:
            raise UserError(f"sample.checks={self.checks} must be a number of pool sizes, or 0.")
        if not _number(self.tolerance) or self.tolerance < 0:
            raise UserError(f"sample.tolerance={self.tolerance} must be a hit rate, such as 0.01.")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


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

    def sampled(self, policy: str, sizes: Sequence[float], sampling: Sampling, plan: Plan) -> list[Row]:
        """A policy from samples; by whole replay where they are too small, or a check shows that they mislead."""
        large = [size for size in sizes if plan.rate * plan.count < 1 and sampling.suits(size, plan.rate)]
        whole = {size: self._replayed(policy, self.requests, size) for size in sizes if size not in large}
        checks = {large[round(len(large) * (i + 0.5) / plan.checks - 0.5)] for i in range(plan.checks if large else 0)}
        checked = {size: self._replayed(policy, self.requests, size) for size in checks}
        gains, biases = self._gains(policy, large, sampling, plan)
        exact = dict(zip(large, lru_points(self.requests, self.block_size, large), strict=True))
        estimates = {size: _estimate(exact[size], mean(gains[size])) for size in large}
        off = max((abs(estimates[size] - point.block_hit_rate) for size, point in checked.items()), default=0.0)
        if off > plan.tolerance:
            more = {size: self._replayed(policy, self.requests, size) for size in large if size not in checked}
            whole, large = whole | checked | more, []
        rows = []
        for size in sizes:
            if size in large:
                row = self._row(policy, "sampled", exact[size], estimates[size])
                row["error"] = max(off, 2 * stdev(gains[size]) / sqrt(plan.count) if plan.count > 1 else 0.0)
                rows.append(row | {"measured_error": off if checked else None, "sample_bias": mean(biases[size])})
            else:
                rows.append(self._row(policy, "replay", whole[size]))
        return rows

    def _gains(
        self, policy: str, sizes: Sequence[float], sampling: Sampling, plan: Plan
    ) -> tuple[dict[float, list[float]], dict[float, list[float]]]:
        """By size, a number per sample: what the policy gains on LRU in it; how far its LRU is off the exact one."""
        gains: dict[float, list[float]] = {size: [] for size in sizes}
        biases: dict[float, list[float]] = {size: [] for size in sizes}
        exact = lru_points(self.requests, self.block_size, sizes)
        for index in range(plan.count if sizes else 0):
            part = sampling.pick(plan.rate, index, self.cfg.seed)
            pools = [sampling.pool(size, plan.rate) for size in sizes]
            for size, pool, base, whole in zip(
                sizes, pools, lru_points(part, self.block_size, pools), exact, strict=True
            ):
                gains[size].append(self._replayed(policy, part, pool).block_hit_rate - base.block_hit_rate)
                biases[size].append(abs(base.block_hit_rate - whole.block_hit_rate))
        return gains, biases

    def _replayed(self, policy: str, requests: Sequence[Request], num_blocks: float) -> Point:
        cfg = with_options(self.cfg, {"num_blocks": num_blocks, "block_size": self.block_size}, evictor=policy)
        metrics = replay(Given(requests, self.workload), CacheManager(instantiate(cfg.allocator)))
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
    plan = Plan(**cfg.sample)
    policies = chosen_names("evictor", cfg.policies)
    curves = Curves(workload, block_size, cfg)
    kept = Given(curves.requests, workload)
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
            rows += curves.sampled(policy, sizes, sampling, plan)
        log({"policies_done": policies.index(policy) + 1, "rows": len(rows)})
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
            "sample_rate": plan.rate,
            "samples": plan.count,
            "largest_error": max(row["error"] for row in rows),
            "largest_sample_bias": max(row["sample_bias"] for row in rows),
            "largest_measured_error": max(row["measured_error"] or 0.0 for row in rows),
            "lru_seconds": lru_seconds,
            "seconds": perf_counter() - start,
        }
    _show(rows)
    return Result(metrics, {"curves": rows, "lru_line": line}, partial(_draw, rows, line))


def _estimate(lru: Point, gain: float) -> float:
    ceiling = lru.ceiling_blocks / lru.full_blocks if lru.full_blocks else 0.0
    return min(max(lru.block_hit_rate + gain, 0.0), ceiling)


def _show(rows: Sequence[Row]) -> None:
    from experiments.show import show_table

    sizes = list(dict.fromkeys(row["num_blocks"] for row in rows))
    step = -(-len(sizes) // MOST_COLUMNS)
    sizes = sizes[::-step][::-1]
    body = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        mine = {row["num_blocks"]: row for row in rows if row["policy"] == policy}
        body.append([policy, *(_cell(mine[size]) for size in sizes)])
    ceilings = {row["num_blocks"]: row["ceiling_token_hit_rate"] for row in rows}
    body.append(["infinite cache", *(f"{ceilings[size]:.1%}" for size in sizes)])
    title = "token hit rate by pool size in blocks (~ from samples, ± error in points)"
    show_table(title, ["policy", *(f"{size:,.0f}" for size in sizes)], body)


def _cell(row: Row) -> str:
    if row["how"] != "sampled":
        return f"{row['token_hit_rate']:.1%}"
    return f"~{row['token_hit_rate']:.1%} ±{100 * row['error']:.1f}"


def _draw(rows: Sequence[Row], line: Sequence[Row], series: Sequence[Row], metrics: Row) -> dict[str, Figure]:
    from experiments.plots.curves import draw_curves

    return draw_curves(rows, line)


@hydra.main(version_base="1.3", config_path="../conf", config_name="curves")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, curves_job, workload_identity)


if __name__ == "__main__":
    cli(main)
