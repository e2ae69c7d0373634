"""Walk the points of a plan: check, measure, say it, go on; whatever goes wrong is said too.

A variant is checked against its plain reference once per kind of call (block size, tiles, dtypes, ...), before the
first time of that kind is taken, in this process. A point whose check fails has no time.

Knows nothing of time left, goals or plots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from experiments.ablation.ceilings import Ceilings
from experiments.ablation.check import Check, check
from experiments.ablation.measured import DisagreementError, measure
from experiments.ablation.point import Point, small
from experiments.ablation.session.plan import Item, Section
from experiments.ablation.timing import Timer
from experiments.ablation.variant.base import Variant
from kernels.attention.forest import PrefixNode, plan_cascade
from kernels.tuning import Tuning

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where points are measured; `adjust` makes them small enough for it."""

    device: torch.device
    device_name: str
    processors: int
    tuning: Tuning
    timer: Timer
    ceilings: Ceilings
    adjust: Callable[[Point], Point] = lambda point: point
    checked: dict[tuple[object, ...], Check] = field(default_factory=dict)

    def lost(self) -> bool:
        """Whether the device no longer answers, as after an illegal memory access."""
        if self.device.type != "cuda":
            return False
        try:
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()
        except Exception:
            return True
        return False


def points_of(plan: Sequence[Section]) -> list[tuple[str, Item]]:
    """Section name and item of every point, in order."""
    return [(section.name, item) for section in plan for item in section.items]


def asked(section: str, item: Item) -> Row:
    """What is known of a point before it is measured."""
    return {"section": section, "variant": type(item.variant).__name__, **item.point.row()}


def run_points(
    points: Sequence[tuple[str, Item]],
    bench: Bench,
    log: Callable[[Row], None],
    begin: Callable[[], None] = lambda: None,
) -> bool:
    """Log a row per point: measured, `skipped` or `failed` with the reason; `begin` is called before each.

    False where the device was lost, at the point of the last row: only another process can go on.
    """
    for section, item in points:
        begin()
        start = time.monotonic()
        row = asked(section, item) | _row(item, bench)
        row["seconds"] = round(time.monotonic() - start, 3)
        log(row)
        if row.get("failed") and bench.lost():
            return False
    return True


def _row(item: Item, bench: Bench) -> Row:
    try:
        asked = bench.adjust(item.point)
        point = item.variant.resolve(asked, bench.tuning, bench.processors)
        work = item.variant.work(point)
        row = {
            **asked.row(), "splits": point.num_splits, "device": bench.device_name, "op": item.variant.op,
            "useful_bytes": work.bytes, "useful_flops": work.flops, **planner(point),
        }  # fmt: skip
        verdict = _verdict(item.variant, point, bench)
        if not verdict.passed:
            return {**row, **verdict.row(), "failed": f"wrong, so not timed: {verdict.describe()}, seed {verdict.seed}"}
        found = measure(item.variant, point, bench.tuning, item.baselines, bench.device, bench.timer, bench.ceilings)
    except DisagreementError as error:
        return {"failed": str(error)}
    except OutOfResources as error:  # tiles are asked for that some GPUs have no room for
        return {"skipped": f"does not fit this GPU: {' '.join(str(error).split())[:200]}"}
    except Exception as error:  # the session goes on: the next point may be fine
        return {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    return {**row, **verdict.row(), **found}


def _verdict(variant: Variant, point: Point, bench: Bench) -> Check:
    kind = (type(variant), tuple(sorted(vars(variant).items())), tuple(small(point).row().items()))
    if kind not in bench.checked:
        bench.checked[kind] = check(variant, point, bench.tuning, bench.device)
    return bench.checked[kind]


def planner(point: Point) -> Row:
    """Whether `plan_cascade` would read a shared prefix once; nothing where none is shared."""
    if not point.shared_prefix:
        return {}
    node = PrefixNode(
        0, point.shared_prefix, tuple(range(point.shared_prefix // point.block_size)), tuple(range(point.batch))
    )
    plan = plan_cascade(
        [node], [point.query_len] * point.batch, num_heads=point.num_heads, num_kv_heads=point.num_kv_heads,
        head_dim_k=point.head_dim, head_dim_v=point.head_dim, element_bytes=1 if point.kv_dtype else 2,
    )  # fmt: skip
    return {"planner_pays": plan.pays}
