"""How fast the engine is, beside transformers in the same process, and whether it keeps its promises.

    python -m experiments.bench_engine
    python -m experiments.bench_engine threads=1 timer=processor

The same weights, prompts and threads; contestants take turns and the best of several rounds counts, so that what else
the machine does hits both. Ratios of one run compare; absolute times belong to the machine of the record. On a machine
that is not idle, products on several threads wait for each other; `threads=1 timer=processor` counts the work alone and
gives steady ratios there. The record has the load. Without transformers (an
optional package) its column is empty and the goals against it are not judged.

Knows nothing of how the engine works.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from operator import ge, le, lt
from time import perf_counter, process_time
from typing import Any

import hydra
import numpy as np
import torch
from omegaconf import DictConfig

from experiments.bench.engine import Cost, Served, best_of, cost_of, cost_without_hits
from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job
from experiments.model_speed import Contestant, Timer, Transformers, race
from experiments.replay import checked_block_size
from experiments.serving import build_engine, load_model
from experiments.show import show_table
from model.pretrained import Pretrained
from scheduler.clock import WallClock

Row = dict[str, Any]
TIMERS: dict[str, Timer] = {"wall": perf_counter, "processor": process_time}
BOUNDS = {"<=": le, "<": lt, ">=": ge}


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that was promised. `value` None: it could not be had."""

    name: str
    value: float | None
    sign: str
    bound: float
    ours: str
    beside: str
    unit: str = ""

    @property
    def met(self) -> bool | None:
        """None where it cannot be judged."""
        return None if self.value is None else bool(BOUNDS[self.sign](self.value, self.bound))

    def verdict(self) -> str:
        """`met`, or by what share of the goal it was missed."""
        if self.value is None:
            return "not judged"
        return "met" if self.met else f"missed by {abs(self.value - self.bound) / self.bound:.0%}"

    def number(self, value: float) -> str:
        """A value of this goal as text."""
        return f"{value:.2%}" if self.unit == "%" else f"{value:.3f}"

    def row(self) -> Row:
        """For the record."""
        return {"goal": self.name, "value": self.value, "sign": self.sign, "bound": self.bound, "met": self.met}


def _check(cfg: DictConfig) -> None:
    for key in ("rounds", "prompt_tokens", "batch_size", "decode_steps"):
        if not isinstance(cfg[key], int) or cfg[key] < 1:
            raise UserError(f"{key}={cfg[key]} must be a positive whole number.")
    if not 0 <= cfg.cached_tokens < cfg.prompt_tokens:
        raise UserError(f"cached_tokens={cfg.cached_tokens} must be part of prompt_tokens={cfg.prompt_tokens}.")


def bench_job(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One job of `conf/bench_engine.yaml`."""
    checked_block_size(cfg.block_size)
    _check(cfg)
    before = os.getloadavg()[0]
    timer = checked_timer(cfg)
    with threads(cfg.threads):
        model = load_model(cfg)
        vocabulary = model.config.vocab_size
        prompt = np.random.default_rng(cfg.seed).integers(0, vocabulary, cfg.prompt_tokens).tolist()
        sharing, plain = (build_engine(cfg, model, caching, clock=WallClock(timer)) for caching in (True, False))
        contestants: list[Contestant] = [Served(sharing)]
        rival, why = transformers_of(model, timer)
        if rival is not None:
            contestants.append(rival)
        sizes = (1, cfg.batch_size)
        rows = race(contestants, prompt, cfg.cached_tokens, sizes, cfg.decode_steps, cfg.rounds)
        for row in rows:
            log(row)
        turned = [prompt[i : i + 128] for i in range(cfg.batch_size)]
        costs = [cost_of(sharing, turned, cfg.decode_steps + 1) for _ in range(cfg.rounds)]
        without_hits = cost_without_hits(
            sharing,
            plain,
            vocabulary,
            cfg.batch_size,
            cfg.zero_hits.prompt_tokens,
            cfg.zero_hits.output_tokens,
            cfg.rounds,
        )
    goals = judged(rows, cfg, best_of(costs), *without_hits)
    metrics = {
        "threads": cfg.threads,
        "timer": cfg.timer,
        "weights": model.name,
        "dtype": str(model.decoder.dtype).removeprefix("torch."),
        "invariant": cfg.invariant,
        "block_size": cfg.block_size,
        "num_blocks": cfg.num_blocks,
        "prompt_tokens": cfg.prompt_tokens,
        "cached_tokens": cfg.cached_tokens,
        "batch_size": cfg.batch_size,
        "seed": cfg.seed,
        "transformers": _version("transformers"),
        "load_before": before,
        "load_after": os.getloadavg()[0],
        **{f"{row['contestant']}_{key}": value for row in rows for key, value in row.items() if key != "contestant"},
        **{goal.name.replace(" ", "_"): goal.value for goal in goals},
        "goals_met": sum(goal.met is True for goal in goals),
        "goals_missed": sum(goal.met is False for goal in goals),
    }
    tables = {"contestants": rows, "goals": [goal.row() for goal in goals]}
    return Result(metrics, tables, show=partial(show, goals, metrics, why))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch computes on so many threads. Raises UserError for less than one."""
    if not isinstance(count, int) or count < 1:
        raise UserError(f"threads={count}: give a positive number of threads (threads=2).")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def checked_timer(cfg: DictConfig) -> Timer:
    """What times. Raises UserError for an unknown one, or for processor time of threads that wait for each other."""
    if cfg.timer not in TIMERS:
        raise UserError(f"timer={cfg.timer} is none of {', '.join(TIMERS)}.")
    if cfg.timer == "processor" and cfg.threads != 1:
        raise UserError("timer=processor adds up the time of all threads, their waiting too: it needs threads=1.")
    return TIMERS[cfg.timer]


def transformers_of(model: Pretrained, timer: Timer) -> tuple[Contestant | None, str]:
    """transformers with the same weights, or None and why not."""
    if model.folder is None:
        return None, "a model that lies in no folder cannot be given to transformers"
    try:
        return Transformers(model.folder, timer), ""
    except ImportError as error:
        return None, f"transformers is not installed ({error}): pip install 'transformers>=5.24,<5.25'"


def judged(rows: Sequence[Row], cfg: DictConfig, decoding: Cost, sharing: Cost, plain: Cost) -> list[Goal]:
    """What was promised, with figures. `rows`: ours first."""
    ours, theirs = rows[0], rows[1] if len(rows) > 1 else {}
    many = f"decode_step_s_batch{cfg.batch_size}"
    cold, warm, one = ours["cold_ttft_s"], ours["warm_ttft_s"], ours["decode_step_s_batch1"]
    rate = cfg.batch_size / ours[many]
    if sharing.hit_tokens:
        raise UserError("the prompts that should share nothing share something: take another seed or more tokens")
    host = decoding.host / decoding.steps
    added = (sharing.host - plain.host) / plain.seconds
    return [
        Goal(
            "cold ttft to transformers", _ratio(cold, theirs.get("cold_ttft_s")), "<=", 1.0,
            f"{cold:.3f} s", _seconds(theirs.get("cold_ttft_s")),
        ),
        Goal("warm ttft to cold", warm / cold, "<=", 0.10, f"{warm:.3f} s", _seconds(theirs.get("warm_ttft_s"))),
        Goal(
            "decode to transformers", _ratio(theirs.get("decode_step_s_batch1"), one), ">=", 1.4,
            f"{1 / one:.1f} tokens/s", _rate(1, theirs.get("decode_step_s_batch1")),
        ),
        Goal(
            f"decode batch {cfg.batch_size} to batch 1", rate * one, ">=", 4.0,
            f"{rate:.1f} tokens/s", _rate(cfg.batch_size, theirs.get(many)),
        ),
        Goal(
            "cost of caching without hits", added, "<", 0.01,
            f"{sharing.output_tokens / sharing.seconds:.1f} tokens/s",
            f"{plain.output_tokens / plain.seconds:.1f} tokens/s without caching", "%",
        ),
        Goal(
            f"scheduler and cache per step at batch {cfg.batch_size}", host / ours[many], "<", 0.03,
            f"{1000 * host:.2f} ms", f"of a step of {1000 * ours[many]:.1f} ms", "%",
        ),
    ]  # fmt: skip


def show(goals: Sequence[Goal], metrics: Row, why: str) -> None:
    """The table, and under which conditions it came about."""
    load = max(metrics["load_before"], metrics["load_after"])
    title = (
        f"{metrics['weights']} {metrics['dtype']}, {metrics['timer']} time on {metrics['threads']} thread(s), "
        f"prompt of {metrics['prompt_tokens']:,} tokens, {metrics['cached_tokens']:,} of them cached; "
        f"load {load:.1f} on {os.cpu_count()} cores"
    )
    beside = f"transformers {metrics['transformers'] or ''}".strip() if not why else f"beside ({why})"
    show_table(
        title,
        ("", "ours", beside, "figure", "goal", ""),
        [
            (
                goal.name,
                goal.ours,
                goal.beside,
                "" if goal.value is None else goal.number(goal.value),
                f"{goal.sign} {goal.number(goal.bound)}",
                goal.verdict(),
            )
            for goal in goals
        ],
    )


def _ratio(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} s"


def _rate(tokens: int, seconds: float | None) -> str:
    return "" if seconds is None else f"{tokens / seconds:.1f} tokens/s"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@hydra.main(version_base="1.3", config_path="../conf", config_name="bench_engine")
def main(cfg: DictConfig) -> None:
    """One run, or one job of a sweep."""
    run_job(cfg, bench_job)


if __name__ == "__main__":
    cli(main)
