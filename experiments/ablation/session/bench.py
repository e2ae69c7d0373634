"""The bench a session works on: a GPU with its tuned table and measured ceilings, or a CPU that only rehearses.

Knows nothing of what is measured on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from experiments.ablation.ceilings import measure_ceilings
from experiments.ablation.point import Point, small
from experiments.ablation.session.plan import Item, Section
from experiments.ablation.session.run import Bench
from experiments.ablation.timing import HostTimer, cuda_timer
from kernels.tuning import CONF, Tuning, load

NEAREST = "sm_90"


def gpu_bench(dtype: str = "bf16") -> Bench:
    """The current CUDA (or ROCm) device, its ceilings just measured; matrix products in `dtype`."""
    device = torch.device("cuda", torch.cuda.current_device())
    properties = torch.cuda.get_device_properties(device)
    timer = cuda_timer(device)
    return Bench(
        device, properties.name, properties.multi_processor_count, table_for(device), timer,
        measure_ceilings(device, timer, dtype),
    )  # fmt: skip


def table_for(device: torch.device) -> Tuning:
    """The tuned table of the device's architecture, or sm_90's where it has none."""
    if torch.version.hip:
        arch = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
    else:
        major, minor = torch.cuda.get_device_capability(device)
        arch = f"sm_{major}{minor}"
    return load(arch if (CONF / f"{arch}.yaml").is_file() else NEAREST)


def rehearsal_bench() -> Bench:
    """A CPU with the interpreter: every line of a session runs, no time means anything."""
    device, timer = torch.device("cpu"), HostTimer(seconds=0.0, least=1)
    ceilings = measure_ceilings(device, timer, "fp32", copy_bytes=1 << 20, size=64)
    return Bench(
        device,
        "CPU, interpreted: a rehearsal",
        1,
        load("interpreter"),
        timer,
        ceilings,
        adjust=rehearsal_point,
    )


def rehearsal_point(point: Point) -> Point:
    """Small, and fp16 where it was bf16, which the interpreter multiplies wrongly."""
    tiny = small(point)
    return replace(tiny, dtype="fp16") if tiny.dtype == "bf16" else tiny


def rehearsed(plan: Sequence[Section], items: int = 2) -> list[Section]:
    """The first items of every section: the rest differs in numbers only."""

    def short(item: Item) -> Item:
        return replace(item, baselines=[b for b in item.baselines if b.name != "flex"])

    return [Section(section.name, [short(item) for item in section.items[:items]]) for section in plan]
