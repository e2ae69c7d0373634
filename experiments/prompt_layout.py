"""What moving a timestamp does: one chat in different layouts, its hit rate, and the time to its first tokens.

    python -m experiments.prompt_layout field=newest history=stable common_tokens=512
    python -m experiments.prompt_layout sweep=story
    python -m experiments.prompt_layout sweep=field engine=true

The words are the same in every run; `field`, `history`, `template`, `common_tokens` and `pad` say how they are written
into prompts. Times are simulated (the real scheduler, a roofline of `gpu` and `model`); with `engine=true` a real
model serves the first prompts as well.

Knows nothing of how a layout is written; the yamls name that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.latency import Row
from experiments.layout.measure import by_turn, count_resent, foretold, layout_metrics
from experiments.layout.real import real_ttft
from experiments.layout.workload import LaidOutChat
from experiments.pool import resolve_num_blocks
from experiments.replay import checked_block_size, workload_identity
from experiments.simulate import arrivals_of, online_manager, simulate, workload_of
from scheduler.checks import Limits
from scheduler.cost import ModelShape, Roofline


def prompt_layout_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/prompt_layout.yaml`: lay the chat out, simulate it, serve its beginning where asked."""
    from experiments.plots.layout import draw_turns

    checked_block_size(cfg.block_size)
    workload = workload_of(cfg)
    if not isinstance(workload, LaidOutChat):
        raise UserError("prompt_layout lays out its own chat: choose field=, history= and template=, not workload=.")
    cfg = cfg.copy()
    asked, shape = cfg.num_blocks, instantiate(cfg.model.shape)
    conditions, metrics, rows = _simulated(cfg, workload, shape, log)
    rows = count_resent(rows, workload, cfg.block_size)
    turns = by_turn(rows)
    tables = {"requests": rows, "turns": turns}
    metrics |= layout_metrics(rows)
    if cfg.engine:
        real, tables["real_requests"] = real_ttft(cfg, workload)
        metrics |= real
    conditions["pool"] = "what fits the GPU" if asked is None else str(asked)
    return Result(conditions | metrics, tables, partial(draw_turns, turns))


def _simulated(
    cfg: DictConfig, workload: LaidOutChat, shape: ModelShape, log: Callable[[Row], None]
) -> tuple[Row, Row, list[Row]]:
    try:
        cost = Roofline(instantiate(cfg.gpu), shape, cfg.block_size)
        if cfg.num_blocks is None:
            cfg.num_blocks = cost.num_blocks(cfg.memory_share)
        else:
            cfg.num_blocks = resolve_num_blocks(cfg.num_blocks, cfg.block_size, workload)
        scheduler = instantiate(cfg.scheduler)(
            manager=online_manager(cfg), limits=Limits(shape.max_model_len), foretell=foretold(workload.replies())
        )
    except ValueError as error:
        raise UserError(str(error)) from None
    conditions = {
        "script_fingerprint": workload.script_fingerprint(),
        "workload_fingerprint": workload.fingerprint(),
        "block_size": cfg.block_size,
        "num_blocks": cfg.num_blocks,
        "pool_tokens": cfg.num_blocks * cfg.block_size,
        "common_tokens": cfg.common_tokens,
        "pad": cfg.pad,
        "prefix_tokens": workload.prefix_tokens,
        "field_changes": cfg.field_changes,
        "turns": cfg.turns,
        "rate": cfg.rate,
        "seed": cfg.seed,
    }
    arrivals = arrivals_of(workload, cfg.rate)
    metrics, rows = simulate(arrivals, scheduler, cost, dict(cfg.slo), log, cfg.sample_every)
    return conditions, metrics, rows


@hydra.main(version_base="1.3", config_path="../conf", config_name="prompt_layout")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, prompt_layout_job, workload_identity)


if __name__ == "__main__":
    cli(main)
