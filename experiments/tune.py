"""Tune a policy on the first part of a workload, and report what that is worth on the rest.

    python -m experiments.tune evictor=hazard 'grid={often: [4, 8, 16]}'
    python -m experiments.tune evictor=s3fifo 'grid={small: [0.05, 0.1, 0.2, 0.4]}' workload=mooncake block_size=512

Every combination of the grid is replayed once per pool size, from a cold cache, over the whole workload. What a policy
does in the first part it would do without the second, so hits of the first part choose, and hits of the second are held
out. Combinations are compared by their gain: hit blocks beyond LRU's, as a share of the part's full blocks, the mean
over the pool sizes. `chosen` has the largest gain in the first part; `optimism` is what one would have believed to gain
on top by choosing on the held-out part itself.

Refuses policies that know the future. Knows nothing of what a parameter means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import mean
from time import perf_counter
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from cache.manager import CacheManager
from cache.sequence import Sequence as Prompt
from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.options import listed, with_options
from experiments.pool import resolve_num_blocks
from experiments.replay import access_of, checked_block_size, show_future, workload_identity
from experiments.workload.base import Request, Workload
from experiments.workload.given import Given

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
Part = tuple[int, int]
"""(first part, second part)"""
MOST_RUNS = 2000


def combinations(evictor: DictConfig, grid: Any) -> list[Row]:
    """Every combination of the grid, the policy's own values among them or put first.

    Raises UserError for a grid that is none, or for a parameter that the policy's yaml does not have.
    """
    known = [key for key in evictor if key != "_target_"]
    name = str(evictor._target_).rpartition(".")[2]
    if not grid or not OmegaConf.is_dict(grid):
        raise UserError(f"grid must name parameters of {name} and values to try, grid={{name: [1, 2]}}: {_has(known)}.")
    for key in grid:
        if key not in known:
            raise UserError(f"grid.{key}: {name} has no such parameter: {_has(known)}.")
    axes = {key: list(dict.fromkeys(listed(grid[key]))) for key in grid}
    tried = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if not tried:
        raise UserError("grid has a parameter without values: give at least one, grid={name: [1]}.")
    default = {key: evictor[key] for key in axes}
    return tried if default in tried else [default, *tried]


def split_at(requests: Sequence[Request], share: float) -> int:
    """The first request of the second part: of those that arrive after this share of the time; of their number where
    all arrive at once. Raises UserError where a part would be empty."""
    first, last = requests[0].arrival, requests[-1].arrival
    border = first + share * (last - first)
    place = next((i for i, r in enumerate(requests) if r.arrival >= border), len(requests))
    place = place if last > first else round(share * len(requests))
    if not 0 < place < len(requests):
        raise UserError(f"split={share} leaves one part of {len(requests)} requests empty: take another share.")
    return place


def hits_by_part(requests: Sequence[Request], manager: CacheManager, border: int) -> tuple[Part, Part]:
    """Hit blocks and full blocks of the served requests before and from `border` on, from a cold cache."""
    hits, full = [0, 0], [0, 0]
    for index, request in enumerate(requests):
        seq = Prompt(request.tokens, access_of(request, index), request.extra_keys)
        if not manager.fits(seq):
            continue
        manager.allocate(seq)
        part = int(index >= border)
        hits[part] += seq.num_hit_blocks
        full[part] += seq.num_tokens // manager.block_size
        manager.promote_to_immutable(seq, seq.num_tokens)
        manager.free(seq)
    return (hits[0], hits[1]), (full[0], full[1])


class Tuning:
    """One workload, one policy: replays, and what follows from them."""

    def __init__(self, requests: Sequence[Request], like: Workload, cfg: DictConfig) -> None:
        self.requests, self.cfg = requests, cfg
        self.block_size = checked_block_size(cfg.block_size)
        if not isinstance(cfg.split, int | float) or not 0 < cfg.split < 1:
            raise UserError(f"split={cfg.split} must lie between 0 and 1: the share of the time that tunes.")
        if not requests:
            raise UserError("the workload has no requests: check workload.path and workload.limit")
        self.border = split_at(requests, cfg.split)
        self.given = Given(requests, like)
        asked = {resolve_num_blocks(size, self.block_size, self.given) for size in listed(cfg.num_blocks)}
        self.pools = sorted(asked)
        self.references = {name: [self._replayed(pool, name) for pool in self.pools] for name in ("lru", "belady")}
        for pool, (_, full) in zip(self.pools, self.references["lru"], strict=True):
            if not all(full):
                raise UserError(f"num_blocks={pool}: a part has no request that fits; take a larger pool.")

    def row(self, values: Mapping[str, Any]) -> Row:
        """A combination: its gain in both parts, in points of block hit rate, and by pool size."""
        row: Row = dict(values)
        gains: tuple[list[float], list[float]] = [], []
        for pool, (base, full) in zip(self.pools, self.references["lru"], strict=True):
            hits, _ = self._replayed(pool, None, values)
            for part, name in enumerate(("tuned", "held_out")):
                gain = 100 * (hits[part] - base[part]) / full[part]
                gains[part].append(gain)
                row[f"{name}_gain_{pool}"] = gain
        return row | {"tuned_gain": mean(gains[0]), "held_out_gain": mean(gains[1])}

    def optimum(self) -> tuple[float, float]:
        """What Belady gains in both parts."""
        gains = [
            [100 * (best[part] - base[part]) / full[part] for part in (0, 1)]
            for (base, full), (best, _) in zip(self.references["lru"], self.references["belady"], strict=True)
        ]
        return mean(gain[0] for gain in gains), mean(gain[1] for gain in gains)

    def _replayed(self, pool: float, name: str | None, values: Mapping[str, Any] | None = None) -> tuple[Part, Part]:
        told = {"num_blocks": pool, "block_size": self.block_size}
        told |= {f"evictor.{key}": value for key, value in (values or {}).items()}
        cfg = with_options(self.cfg, told, **({} if name is None else {"evictor": name}))
        manager = CacheManager(instantiate(cfg.allocator))
        if manager.allocator.evictor is None:
            raise UserError("there is no policy to tune: allocator=naive evicts nothing.")
        if name is None and manager.allocator.evictor.needs_future:
            raise UserError(f"{type(manager.allocator.evictor).__name__} knows the future: nothing can be held out.")
        show_future(self.given, manager)
        return hits_by_part(self.requests, manager, self.border)


def tune_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/tune.yaml`."""
    tried = combinations(cfg.evictor, cfg.grid)
    if len(tried) * len(list(listed(cfg.num_blocks))) > MOST_RUNS:
        raise UserError(f"{len(tried)} combinations are more than a tuning can try: take a coarser grid.")
    workload: Workload = instantiate(cfg.workload)
    start = perf_counter()
    tuning = Tuning(list(workload), workload, cfg)
    rows = []
    for values in tried:
        rows.append(tuning.row(values))
        log({"combinations_done": len(rows), "tuned_gain": rows[-1]["tuned_gain"]})
    default = rows[tried.index({key: cfg.evictor[key] for key in tried[0]})]
    chosen = max(rows, key=lambda row: row["tuned_gain"])
    for row in rows:
        row |= {"is_default": row is default, "is_chosen": row is chosen}
    optimum = tuning.optimum()
    held_out = [row["held_out_gain"] for row in rows]
    metrics = {
        "workload_fingerprint": workload.fingerprint(),
        "granularity": workload.granularity,
        "block_size": tuning.block_size,
        "num_blocks": " ".join(f"{pool:.0f}" for pool in tuning.pools),
        "seed": cfg.seed,
        "split": cfg.split,
        "requests": len(tuning.requests),
        "requests_that_tuned": tuning.border,
        "combinations": len(rows),
        "chosen": _spelled({key: chosen[key] for key in tried[0]}),
        "tuned_gain": chosen["tuned_gain"],
        "held_out_gain": chosen["held_out_gain"],
        "default_held_out_gain": default["held_out_gain"],
        "optimism": max(held_out) - chosen["held_out_gain"],
        "worst_held_out_gain": min(held_out),
        "belady_tuned_gain": optimum[0],
        "belady_held_out_gain": optimum[1],
        "seconds": perf_counter() - start,
    }
    name = HydraConfig.get().runtime.choices["evictor"] if HydraConfig.initialized() else ""
    return Result(metrics, {"tuning": rows}, partial(_draw, rows, name), show=partial(_show, rows, list(tried[0])))


def _has(known: Sequence[Any]) -> str:
    return f"its yaml has {', '.join(map(str, known))}" if known else "its yaml has none"


def _spelled(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def _show(rows: Sequence[Row], parameters: Sequence[str]) -> None:
    from experiments.show import show_table

    ranked = sorted(rows, key=lambda row: -row["tuned_gain"])
    body = [
        [
            *(str(row[key]) for key in parameters),
            f"{row['tuned_gain']:+.2f}",
            f"{row['held_out_gain']:+.2f}",
            ", ".join(word for word, yes in (("chosen", row["is_chosen"]), ("default", row["is_default"])) if yes),
        ]
        for row in ranked
    ]
    title = "hits beyond LRU's, in points of block hit rate, mean over the pools"
    show_table(title, [*parameters, "first part", "held out", ""], body)


def _draw(rows: Sequence[Row], name: str, series: Sequence[Row], metrics: Row) -> dict[str, Figure]:
    from experiments.plots.tune import draw_tuning

    return draw_tuning(rows, name, metrics["belady_held_out_gain"])


@hydra.main(version_base="1.3", config_path="../conf", config_name="tune")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, tune_job, workload_identity)


if __name__ == "__main__":
    cli(main)
