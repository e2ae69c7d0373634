"""Numerics ledger: what a prompt's numbers owe to how it was computed.

    python -m experiments.numerics model=smollm2
    python -m experiments.numerics model=tiny workload=shared_prefix workload.vocab_size=512

Every prompt runs four ways, through the real cache, in fast and in invariant mode:

    cold      alone, in one step, from an empty cache      the yardstick of its mode
    warm      again, over the prefix that the cold run left in the cache
    chunked   alone, `chunk` tokens a step, from an empty cache
    batched   all prompts in one step, from an empty cache

All are fed the tokens the cold run chose, so that logits compare step by step: the largest |Δ logit|, the largest
KL(cold ‖ other) in nats, the first step whose greedy choice differs, and whether K and V of the prompt are equal,
byte for byte. The cost of invariance is the ratio of the seconds of both modes.

Knows nothing of schedulers: it drives cache and runner itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from time import perf_counter
from typing import Any

import hydra
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from cache.access import Access
from cache.manager import CacheManager
from cache.store import KVStore
from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.numerics_run import Run, differences
from experiments.replay import checked_block_size, workload_identity
from experiments.serving import load_model
from experiments.workload.base import Workload
from model.batch import check_token_ids
from model.runner import ModelRunner

Row = dict[str, Any]
TREATMENTS = ("cold", "warm", "chunked", "batched")
MODES = ("fast", "invariant")


def compare(
    manager: CacheManager,
    store: KVStore,
    runners: dict[str, ModelRunner],
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    chunk: int,
    log: Callable[[Row], None] = lambda row: None,
) -> tuple[Row, list[Row], list[Row]]:
    """Metrics, one row per mode and treatment, one row per output step. `runners`: by mode, over the same `store`.

    Raises what cache and runner raise; the pool must hold all prompts and outputs at once.
    """
    table: list[Row] = []
    steps: list[Row] = []
    metrics: Row = {}
    for mode, runner in runners.items():
        cold = _treat("cold", manager, store, runner, prompts, output_tokens, chunk, None)
        forced = [run.chosen for run in cold]
        for treatment in TREATMENTS:
            runs = cold if treatment == "cold" else _treat(
                treatment, manager, store, runner, prompts, output_tokens, chunk, forced
            )  # fmt: skip
            row, per_step = differences(cold, runs)
            row = {"mode": mode, "treatment": treatment, **row}
            table.append(row)
            steps += [{"mode": mode, "treatment": treatment, **step} for step in per_step]
            log({"mode": mode, "treatment": treatment, "max_logit_difference": row["max_logit_difference"]})
            if treatment != "cold":
                kept = ("max_logit_difference", "max_kl", "kv_equal")
                metrics |= {f"{mode}_{treatment}_{key}": row[key] for key in kept}
        metrics[f"{mode}_prefill_s"] = sum(run.prefill_s for run in cold)
        metrics[f"{mode}_decode_s"] = sum(run.decode_s for run in cold)
    if set(runners) == set(MODES):
        metrics["invariant_prefill_cost"] = metrics["invariant_prefill_s"] / metrics["fast_prefill_s"]
        metrics["invariant_decode_cost"] = metrics["invariant_decode_s"] / metrics["fast_decode_s"]
        exact = [row for row in table if row["mode"] == "invariant"]
        metrics["invariant_is_bitwise"] = all(row["kv_equal"] and row["logits_equal"] for row in exact)
    return metrics, table, steps


def _treat(
    treatment: str,
    manager: CacheManager,
    store: KVStore,
    runner: ModelRunner,
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    chunk: int,
    forced: Sequence[Sequence[int]] | None,
) -> list[Run]:
    """Run every prompt one way. The cache is empty before, except for what `warm` needs."""
    manager.reset()
    runs: list[Run] = []
    groups = [list(range(len(prompts)))] if treatment == "batched" else [[i] for i in range(len(prompts))]
    for group in groups:
        if treatment == "warm":
            earlier = Run(manager, store, prompts[group[0]], Access(0))
            Run.prefill([earlier], runner, len(earlier.prompt))
            earlier.free()
        new = [Run(manager, store, prompts[i], Access(i + 1), forced[i] if forced else None) for i in group]
        start = perf_counter()
        Run.prefill(new, runner, chunk if treatment == "chunked" else max(map(len, prompts)))
        middle = perf_counter()
        for _ in range(output_tokens - 1):
            Run.decode(new, runner)
        for run in new:
            run.prefill_s, run.decode_s = middle - start, perf_counter() - middle
            run.keep_kv()
            run.free()
        runs += new
    return runs


def prompts_of(requests: Iterable[Any], count: int, length: int, vocab_size: int) -> list[list[int]]:
    """The last `length` tokens of the first `count` requests that have so many.

    Raises UserError where there are none, or a token is unknown to the model.
    """
    prompts = list(islice((r.tokens.tolist()[-length:] for r in requests if len(r.tokens) >= length), count))
    if len(prompts) < count:
        raise UserError(
            f"only {len(prompts)} of num_prompts={count} prompts have prompt_tokens={length}: lower one of them"
        )
    for prompt in prompts:
        try:
            check_token_ids(prompt, vocab_size)
        except ValueError as error:
            raise UserError(f"the workload does not suit the model: {error}. Choose another workload=.") from None
    return prompts


def numerics_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/numerics.yaml`."""
    from experiments.plots.numerics import draw_numerics

    for name in ("num_prompts", "prompt_tokens", "output_tokens", "chunk", "num_blocks"):
        if not isinstance(cfg[name], int) or cfg[name] < 1:
            raise UserError(f"{name}={cfg[name]} must be a positive whole number")
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    workload: Workload = instantiate(cfg.workload)
    model = load_model(cfg)
    config, size = model.config, checked_block_size(cfg.block_size)
    length = cfg.prompt_tokens + cfg.output_tokens
    if length > config.max_model_len:
        raise UserError(f"prompt_tokens + output_tokens = {length}; model {model.name} takes {config.max_model_len}")
    if cfg.num_prompts * (length // size + 1) > cfg.num_blocks:
        raise UserError(f"num_blocks={cfg.num_blocks} cannot hold {cfg.num_prompts} prompts of {length} tokens at once")
    prompts = prompts_of(workload, cfg.num_prompts, cfg.prompt_tokens, config.vocab_size)
    try:
        store = KVStore(
            cfg.num_blocks, size, config.num_layers, config.num_kv_heads, config.head_dim,
            dtype=model.decoder.dtype, device=model.decoder.device,
        )  # fmt: skip
    except MemoryError as error:
        raise UserError(str(error)) from None
    manager = CacheManager(instantiate(cfg.allocator), weights_version=model.decoder.weights_version)
    backend = instantiate(cfg.backend)
    runners = {mode: ModelRunner(model.decoder, store, backend, invariant=mode == "invariant") for mode in MODES}
    metrics, table, steps = compare(manager, store, runners, prompts, cfg.output_tokens, cfg.chunk, log)
    conditions = {
        "workload_fingerprint": workload.fingerprint(),
        "weights_version": model.decoder.weights_version,
        "dtype": str(model.decoder.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        **{name: cfg[name] for name in ("block_size", "num_prompts", "prompt_tokens", "output_tokens", "chunk")},
    }
    _show(table)
    tables = {"treatments": table, "steps": steps}
    return Result(conditions | metrics, tables, lambda series, done: draw_numerics(steps))


def _show(table: Sequence[Row]) -> None:
    from experiments.show import show_table

    rows: list[list[str]] = []
    for row in table:
        if row["treatment"] == "cold":
            rows.append([str(row["mode"])])
            continue
        first = row["first_differing_token"]
        kv = "equal" if row["kv_equal"] else f"{row['kv_differing_share']:.1%} of bytes differ"
        cells = [f"{row['max_logit_difference']:.2g}", f"{row['max_kl']:.2g}", "none" if first is None else str(first)]
        rows.append([row["treatment"], *cells, kv])
    columns = ("against cold", "max |Δ logit|", "max KL (nats)", "first other token", "K and V of the prompt")
    show_table("what a prompt's numbers owe to how it was computed", columns, rows)


@hydra.main(version_base="1.3", config_path="../conf", config_name="numerics")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, numerics_job, workload_identity)


if __name__ == "__main__":
    cli(main)
