"""What a kernel costs, point by point: timed on a GPU, or read off the compiler's output where there is none.

    python -m experiments.kernel_ablation op=decode variant=split_kv block_size=8
    python -m experiments.kernel_ablation sweep=block_size

Before a number there is a check: the variant, at the point's block size, tiles and dtypes, against its plain reference
on fresh random inputs, in this process. Without a GPU that runs in Triton's interpreter.

Knows nothing of which kernels there are: `variant=` names a class.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from experiments.cli import cli
from experiments.environment import environment
from experiments.errors import UserError
from experiments.job import Result, run_job

if TYPE_CHECKING:
    from experiments.ablation.point import Point
    from experiments.ablation.session.run import Bench
    from experiments.ablation.variant.base import Variant
    from kernels.tuning import Tuning

Row = dict[str, Any]
MODES = ("auto", "time", "compile")


def ablate(cfg: DictConfig, log: Callable[[Row], None]) -> Result:
    """One point: checked, then timed or compiled. Raises UserError where the point, or the variant, is wrong."""
    timed = decide(cfg.mode)
    from experiments.ablation.point import Point

    try:
        point = Point(**{field.name: cfg[field.name] for field in fields(Point)})
        variant, tuning = instantiate(cfg.variant), instantiate(cfg.kernel)
        if timed:
            from experiments.ablation.session.bench import gpu_bench

            row = time_point(cfg, variant, point, tuning, gpu_bench(dtype=point.dtype))
        else:
            row = _compiled(cfg, variant, point, tuning)
    except ValueError as error:
        raise UserError(str(error)) from error
    log({key: value for key, value in row.items() if isinstance(value, int | float) and not isinstance(value, bool)})
    return Result(row)


def decide(mode: str) -> bool:
    """True: time on the GPU at hand. Kernels imported after this are interpreted unless that is so."""
    import torch

    if mode not in MODES:
        raise UserError(f"mode={mode} is none of {', '.join(MODES)}.")
    present = torch.cuda.is_available()
    if mode == "time" and not present:
        raise UserError("mode=time needs a GPU, and torch sees none: mode=compile studies kernels without one.")
    timed = present and mode != "compile"
    os.environ["TRITON_INTERPRET"] = "0" if timed else "1"
    return timed


def time_point(cfg: DictConfig, variant: Variant, point: Point, tuning: Tuning, bench: Bench) -> Row:
    """The row of a point timed on a bench, by its ceilings and beside the config's baselines."""
    from experiments.ablation.measured import DisagreementError, measure

    asked, point = point, variant.resolve(point, tuning, bench.processors)
    verdict = checked(variant, point, tuning, bench.device)
    baselines = [instantiate(baseline) for baseline in cfg.baselines]
    try:
        found = measure(variant, point, tuning, baselines, bench.device, bench.timer, bench.ceilings, cfg.seed)
    except DisagreementError as error:
        raise UserError(f"{cfg.variant._target_}: {error}.") from error
    return {**_head(variant, asked, point), "device": bench.device_name, **verdict, **found}


def _compiled(cfg: DictConfig, variant: Variant, point: Point, tuning: Tuning) -> Row:
    import torch

    from experiments.ablation.compiled import Study, model
    from kernels.targets import find_target

    target = find_target(tuning.arch)
    asked, point = point, variant.resolve(point, tuning, target.processors)
    study = Study(variant, point, tuning, target, cfg.aot_cache)  # compiles in a child while the check runs here
    verdict = checked(variant, point, tuning, torch.device("cpu"))
    head = _head(variant, asked, point)
    return {**head, "device": f"{target.gpu} ({target.name}), not run", **verdict, **study.row()} | model(
        head, point, target
    )


def _head(variant: Variant, asked: Point, point: Point) -> Row:
    work = variant.work(point)
    return {**asked.row(), "splits": point.num_splits, "useful_bytes": work.bytes, "useful_flops": work.flops}


def checked(variant: Variant, point: Point, tuning: Tuning, device: Any) -> Row:
    """The verdict as columns. Raises UserError where the variant is wrong."""
    from experiments.ablation.check import check

    verdict = check(variant, point, tuning, device)
    if not verdict.passed:
        raise UserError(
            f"{type(variant).__name__} is wrong at this point, so no number of it is shown: {verdict.describe()}, "
            f"seed {verdict.seed}."
        )
    return verdict.row()


def machine(cfg: DictConfig) -> Row:
    """What the numbers depend on that the config does not say."""
    made = environment()
    return {key: made[key] for key in ("gpu", "packages")}


@hydra.main(version_base="1.3", config_path="../conf", config_name="kernel_ablation")
def main(cfg: DictConfig) -> None:
    """One point, or one job of a sweep."""
    run_job(cfg, ablate, machine)


if __name__ == "__main__":
    cli(main)
