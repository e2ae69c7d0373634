"""Which block size? Hit rate at every size from one walk, what partly filled blocks waste, and what kernels take.

    python -m experiments.block_size workload=stdlib_agent
    python -m experiments.block_size kernel_times=path/to/times.jsonl prefill_us_per_token=50 calls_per_request=6400

An infinite pool needs no replay (`experiments.common_prefix`). A finite one does not follow from common prefixes, since
what is evicted depends on every request in between: LRU at the sizes of `finite_sizes` comes exactly from one walk each
(`experiments.stack_distance`), in pools of the same memory; other policies need a replay per size.

`fragmentation` is the share of the memory of a running prompt that its partly filled last block leaves unused;
`lost_tokens_per_request` what an infinite cache would have hit with blocks of one token and does not with this size.
With kernel times and both costs given, a request is estimated to take (tokens to compute) x `prefill_us_per_token` +
`calls_per_request` x kernel time, and the best size is the one where that is least; the two terms are all it knows.
Otherwise `worth_considering` marks sizes that no other beats in hit rate and kernel time at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from experiments.cli import cli
from experiments.common_prefix import CommonPrefixes
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.kernel_times import read_kernel_times
from experiments.lru_sizes import lru_points
from experiments.options import listed
from experiments.pool import resolve_num_blocks
from experiments.replay import checked_block_size, workload_identity
from experiments.workload.base import Request, Workload
from experiments.workload.given import Given

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

MOST_BLOCKS = 30_000_000
"""A walk of more blocks than this is left out of the finite sizes: it takes minutes."""


def size_rows(prefixes: CommonPrefixes, sizes: Sequence[int], granularity: int) -> list[Row]:
    """A row per block size: exact counts and rates of an infinite pool, fragmentation, what is lost to blocks."""
    tokens, count = int(prefixes.lengths.sum()), max(len(prefixes.lengths), 1)
    rows = []
    for size in sizes:
        hits, full, held = prefixes.hit_blocks(size), prefixes.full_blocks(size), prefixes.held_blocks(size)
        rows.append(
            {
                "block_size": size,
                "full_blocks": full,
                "hit_blocks": hits,
                "block_hit_rate": hits / full if full else 0.0,
                "token_hit_rate": hits * size / tokens,
                "lost_tokens_per_request": (prefixes.shared_tokens - hits * size) / count,
                "fragmentation": 1 - tokens / (held * size),
                "told_apart": size >= granularity,
            }
        )
    return rows


def finite_rows(requests: Sequence[Request], like: Workload, sizes: Sequence[int], asked: object) -> list[Row]:
    """LRU in a pool of the memory asked for, exactly, at each block size that a walk can afford."""
    tokens, kept = sum(len(request.tokens) for request in requests), Given(requests, like)
    rows = []
    for size in sizes:
        if tokens // size > MOST_BLOCKS:
            continue
        num_blocks = resolve_num_blocks(asked, size, kept)
        (point,) = lru_points(requests, size, [num_blocks])
        if point.served:
            rows.append(
                {
                    "block_size": size,
                    "num_blocks": num_blocks,
                    "lru_hit_blocks": point.hit_blocks,
                    "lru_block_hit_rate": point.block_hit_rate,
                    "lru_token_hit_rate": point.hit_blocks * size / point.prompt_tokens,
                    "refused": len(requests) - point.served,
                }
            )
    return rows


def estimate(rows: Sequence[Row], times: dict[int, float], cfg: DictConfig, tokens_per_request: float) -> list[Row]:
    """Rows of the block sizes that have a kernel time, with that time and what follows from it."""
    prefill, calls = cfg.prefill_us_per_token, cfg.calls_per_request
    if (prefill is None) != (calls is None):
        raise UserError("give both prefill_us_per_token and calls_per_request for an estimate, or neither.")
    joined = []
    for row in rows:
        if row["block_size"] in times:
            rate = row.get("lru_token_hit_rate", row["token_hit_rate"])
            joined.append(
                {"block_size": row["block_size"], "token_hit_rate": rate, "kernel_us": times[row["block_size"]]}
            )
    if not joined:
        raise UserError(f"kernel_times has block sizes {sorted(times)}, none of which was asked for with sizes=...")
    for row in joined:
        row["worth_considering"] = not any(_beats(other, row) for other in joined)
        if prefill is not None:
            row["prefill_us"] = (1 - row["token_hit_rate"]) * tokens_per_request * prefill
            row["kernels_us"] = row["kernel_us"] * calls
            row["request_us"] = row["prefill_us"] + row["kernels_us"]
    return joined


def _beats(a: Row, b: Row) -> bool:
    better = a["token_hit_rate"] >= b["token_hit_rate"] and a["kernel_us"] <= b["kernel_us"]
    return better and (a["token_hit_rate"], -a["kernel_us"]) != (b["token_hit_rate"], -b["kernel_us"])


def block_size_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/block_size.yaml`."""
    workload: Workload = instantiate(cfg.workload)
    sizes = _sizes(cfg.sizes)
    finite = [checked_block_size(size) for size in listed(cfg.finite_sizes)]
    start = perf_counter()
    requests = list(workload)
    if not requests:
        raise UserError("the workload has no requests: check workload.path and workload.limit")
    prefixes = CommonPrefixes(requests, workload.granularity)
    rows = size_rows(prefixes, sizes, workload.granularity)
    infinite_seconds = perf_counter() - start
    by_size = {row["block_size"]: row for row in rows}
    if cfg.num_blocks is not None:
        for row in finite_rows(requests, workload, [size for size in finite if size in by_size], cfg.num_blocks):
            by_size[row["block_size"]].update(row)
            log({"block_size": row["block_size"], "hit_rate": row["lru_token_hit_rate"]})
    tokens = int(prefixes.lengths.sum())
    metrics = {
        "workload_fingerprint": workload.fingerprint(),
        "granularity": workload.granularity,
        "requests": len(requests),
        "prompt_tokens": tokens,
        "shared_tokens": prefixes.shared_tokens,
        "num_block_sizes": len(sizes),
        "num_blocks": str(cfg.num_blocks),
        "seed": cfg.seed,
        **{f"token_hit_rate_{s}": by_size[s]["token_hit_rate"] for s in (1, 16, 64, 256, 1024) if s in by_size},
        **{
            f"lru_token_hit_rate_{size}": row["lru_token_hit_rate"]
            for size, row in by_size.items()
            if "lru_token_hit_rate" in row
        },
        "infinite_seconds": infinite_seconds,
        "seconds": perf_counter() - start,
    }
    tables: dict[str, Sequence[Row]] = {"block_sizes": rows}
    if cfg.kernel_times is not None:
        times = read_kernel_times(cfg.kernel_times, cfg.kernel_time_column)
        tables["kernel_times"] = joined = estimate(rows, times, cfg, tokens / len(requests))
        if "request_us" in joined[0]:
            best = min(joined, key=lambda row: float(row["request_us"]))
            metrics |= {"best_block_size": best["block_size"], "best_request_us": best["request_us"]}
        metrics["worth_considering"] = " ".join(str(row["block_size"]) for row in joined if row["worth_considering"])
    _show([by_size[size] for size in finite if size in by_size])
    return Result(metrics, tables, partial(_draw, tables, workload.granularity))


def _sizes(asked: Any) -> list[int]:
    if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 1:
        return list(range(1, asked + 1))
    return sorted({checked_block_size(size) for size in listed(asked)})


def _show(rows: Sequence[Row]) -> None:
    from experiments.show import show_table

    columns = ["block size", "infinite pool", "LRU", "lost tokens/request", "fragmentation"]
    show_table(
        "token hit rate by block size",
        columns,
        [
            [
                f"{row['block_size']}{'' if row['told_apart'] else ' *'}",
                f"{row['token_hit_rate']:.1%}",
                f"{row['lru_token_hit_rate']:.1%}" if "lru_token_hit_rate" in row else "",
                f"{row['lost_tokens_per_request']:,.1f}",
                f"{row['fragmentation']:.2%}",
            ]
            for row in rows
        ],
    )


def _draw(tables: dict[str, Sequence[Row]], granularity: int, series: Sequence[Row], metrics: Row) -> dict[str, Figure]:
    from experiments.plots.block_size import draw_block_sizes

    return draw_block_sizes(tables["block_sizes"], tables.get("kernel_times", ()), granularity)


@hydra.main(version_base="1.3", config_path="../conf", config_name="block_size")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, block_size_job, _identity)


def _identity(cfg: DictConfig) -> Row:
    known = workload_identity(cfg)
    if cfg.kernel_times is not None:
        known["kernel_times_us"] = str(read_kernel_times(cfg.kernel_times, cfg.kernel_time_column))
    return known


if __name__ == "__main__":
    cli(main)
