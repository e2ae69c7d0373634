"""Hit rate against pool size: LRU exactly and at once, the optimum, the ceiling, and any other policy from samples.

    python -m experiments.curves workload=mooncake block_size=512 'policies=[fifo,lfu]'

LRU comes from stack distances (`experiments.stack_distance`), exactly what a replay counts at every pool size; Belady
from a replay at each size asked for, blocks of running requests pinned as ever. Other policies are replayed at each
size, too, unless that is a lot of work (`sample.above`). Then they are replayed over samples of the workload: what a
policy gains on LRU within a sample is added to LRU's exact rate, which takes out most of what makes one sample differ
from another. At a few sizes, the smallest and the largest among them, the policy is replayed whole; what the samples
are off there is taken out everywhere (`bias`), and `error` says how far the rest may be off (`experiments.sampled`):
`bias_error` as measured between the whole replays, `spread_error` from sample to sample. Where the measured one exceeds
a tolerance, or pools are too small for a sample, the policy is replayed whole at every size: error 0.

Accounting as in `experiments.replay`; knows nothing of how a policy works.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
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
from experiments.sampled import Estimate, bias_error, estimates, sizes_to_check
from experiments.sampling import Sampling
from experiments.workload.base import Request, Workload
from experiments.workload.given import Given

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scheduler.cost import ModelShape

Row = dict[str, Any]

LINE_POINTS = 240
"""Points of the LRU line, in equal steps of the logarithm of the pool size."""


GIGABYTE = 1e9

MOST_COLUMNS = 6
"""Pool sizes in the table on the screen; the record has all."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How policies other than LRU and Belady are sampled."""

    rate: float = 0.1
    """Share of the workload in one sample; with rate x count = 1 or more everything is replayed whole."""
    count: int = 4
    checks: int = 4
    """Sizes at which a sampled policy is also replayed whole, to measure the samples' bias."""
    tolerance: float = 0.01
    """A bias error (of the block hit rate) above this discards the samples: the policy is replayed whole."""
    above: float = 0
    """Full blocks x pool sizes: up to so many are looked up in whole replays, samples are for more."""

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
        if not _number(self.above) or self.above < 0:
            raise UserError(f"sample.above={self.above} must be a number of blocks, or 0 to sample in any case.")


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
        self.full_blocks = sum(len(request.tokens) // block_size for request in self.requests)

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
        """A policy from samples; by whole replay where that is little work, or samples are too small or mislead."""
        if plan.rate * plan.count >= 1 or self.full_blocks * len(sizes) <= plan.above:
            return self.whole(policy, sizes)
        large = [size for size in sizes if sampling.suits(size, plan.rate)]
        checks = sizes_to_check(large, plan.checks)
        exact = dict(zip(large, lru_points(self.requests, self.block_size, large), strict=True))
        whole = {
            size: self._replayed(policy, self.requests, size) for size in sizes if size not in large or size in checks
        }
        gains = self._gains(policy, large, sampling, plan)
        gained = {size: whole[size].block_hit_rate - exact[size].block_hit_rate for size in checks}
        if (bias_error({size: np.array(gains[size]) for size in large}, gained) or 0.0) > plan.tolerance:
            whole |= {size: self._replayed(policy, self.requests, size) for size in large if size not in whole}
        found = estimates(gains, gained)
        return [
            self._row(policy, "replay", whole[size])
            if size in whole
            else self._sampled_row(policy, exact[size], found[size])
            for size in sizes
        ]

    def _gains(self, policy: str, sizes: Sequence[float], sampling: Sampling, plan: Plan) -> dict[float, list[float]]:
        """By size, a number per sample: what the policy gains on LRU in it."""
        gains: dict[float, list[float]] = {size: [] for size in sizes}
        pools = [sampling.pool(size, plan.rate) for size in sizes]
        for index in range(plan.count if sizes else 0):
            part = sampling.pick(plan.rate, index, self.cfg.seed)
            for size, pool, base in zip(sizes, pools, lru_points(part, self.block_size, pools), strict=True):
                gains[size].append(self._replayed(policy, part, pool).block_hit_rate - base.block_hit_rate)
        return gains

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
            "bias": 0.0,
            "bias_error": 0.0,
            "spread_error": 0.0,
            "refused": len(self.requests) - point.served,
        }

    def _sampled_row(self, policy: str, lru: Point, found: Estimate) -> Row:
        ceiling = lru.ceiling_blocks / lru.full_blocks if lru.full_blocks else 0.0
        rate = min(max(lru.block_hit_rate + found.gain, 0.0), ceiling)
        errors = {"bias": found.bias, "bias_error": found.bias_error, "spread_error": found.spread_error}
        return self._row(policy, "sampled", lru, rate) | {"error": found.error} | errors


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
    bytes_per_token = _bytes_per_token(cfg)
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
            **_memory(line, bytes_per_token),
            **_sampling(rows, plan),
            "lru_seconds": lru_seconds,
            "seconds": perf_counter() - start,
        }
    if bytes_per_token is not None:
        for row in [*rows, *line]:
            row["pool_gigabytes"] = row["pool_tokens"] * bytes_per_token / GIGABYTE
    _show(rows)
    for note in notes_of(rows):
        print(f"note: {note}", file=sys.stderr)
    return Result(metrics, {"curves": rows, "lru_line": line}, partial(_draw, rows, line))


def _bytes_per_token(cfg: DictConfig) -> float | None:
    """K and V of one token of the model that the yaml names; None without one."""
    model = cfg.get("model")
    if model is None:
        return None
    if model.shape is None:
        raise UserError("this model has weights but no shape to count bytes of: name one such as model=llama3-8b.")
    try:
        shape: ModelShape = instantiate(model.shape)
    except ValueError as error:
        raise UserError(str(error)) from None
    return shape.kv_bytes_per_token


def _memory(line: Sequence[Row], bytes_per_token: float | None) -> Row:
    """What the ceiling costs in memory, where a model says what a token takes."""
    if bytes_per_token is None:
        return {}
    return {
        "kv_bytes_per_token": bytes_per_token,
        "gigabytes_to_reach_the_ceiling": line[-1]["pool_tokens"] * bytes_per_token / GIGABYTE,
    }


def _sampling(rows: Sequence[Row], plan: Plan) -> Row:
    """How points were sampled and how far they may be off, where any was."""
    sampled = [row for row in rows if row["how"] == "sampled"]
    if not sampled:
        return {"sampled_points": 0}
    return {
        "sampled_points": len(sampled),
        "sample_rate": plan.rate,
        "samples": plan.count,
        "largest_error": max(row["error"] for row in sampled),
        "largest_bias": max((row["bias"] for row in sampled), key=abs),
        "largest_bias_error": max(row["bias_error"] or 0.0 for row in sampled),
        "largest_spread_error": max(row["spread_error"] or 0.0 for row in sampled),
    }


def notes_of(rows: Sequence[Row]) -> list[str]:
    """What a reader must know: which pools refuse requests, how far samples were off, what the error does not cover."""
    notes = []
    refused = {row["num_blocks"]: row["refused"] for row in rows if row["refused"]}
    if refused:
        notes.append(
            f"pools of {', '.join(f'{size:,.0f}' for size in refused)} blocks refuse requests larger than they are "
            f"({', '.join(f'{count:,}' for count in refused.values())} of them): their rates are over fewer requests "
            "and do not compare with those of other pools"
        )
    for policy in dict.fromkeys(row["policy"] for row in rows if row["how"] == "sampled"):
        mine = [row for row in rows if row["policy"] == policy and row["how"] == "sampled"]
        worst = max(mine, key=lambda row: abs(row["bias"]))
        if mine[0]["bias_error"] is None:
            notes.append(f"{policy}: sample.checks=0, so the error tells of the spread alone, not of the samples' bias")
        elif abs(worst["bias"]) > max(row["error"] for row in mine):
            notes.append(
                f"{policy}: samples alone were up to {100 * abs(worst['bias']):.1f} points of the block hit rate too "
                f"{'low' if worst['bias'] > 0 else 'high'}, which is taken out; a policy that learns from many "
                "requests does worse in a part of them (sample.rate=1 replays everything)"
            )
    return notes


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
    memory = {row["num_blocks"]: f"\n{row['pool_gigabytes']:,.3g} GB" for row in rows if "pool_gigabytes" in row}
    title = "token hit rate by pool size in blocks (~ from samples, ± error in points)"
    show_table(title, ["policy", *(f"{size:,.0f}{memory.get(size, '')}" for size in sizes)], body)


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
