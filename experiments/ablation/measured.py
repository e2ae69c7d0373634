"""A point timed on the device at hand, beside the baselines, against ceilings measured in the same run.

Two walls stand before a number. The caller has checked the variant against its plain reference (`check.py`); and at
full size the results must agree with every trusted baseline, or nothing is timed. A baseline that cannot do the point,
fails, or disagrees without being trusted, leaves its reason in the row instead of a time.

Knows nothing of the reference, or of which device it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.ablation.baseline.base import Baseline, UnsupportedError
from experiments.ablation.ceilings import Ceilings
from experiments.ablation.check import judge
from experiments.ablation.point import Point
from experiments.ablation.timing import Timer
from experiments.ablation.variant.base import Variant
from kernels.tuning import Tuning

Row = dict[str, Any]


class DisagreementError(Exception):
    """The variant and a trusted baseline differ on the same inputs: there is nothing worth timing."""


def measure(
    variant: Variant,
    point: Point,
    tuning: Tuning,
    baselines: Sequence[Baseline],
    device: torch.device,
    timer: Timer,
    ceilings: Ceilings,
    seed: int = 0,
) -> Row:
    """Columns: `p20_us`, `p50_us`, `p80_us`, `host_us`, rates, `share_of_ceiling`, and per baseline `<name>_us`.

    `share_of_ceiling` is the least time the work can take at the measured ceilings over p50; `limit` names which.
    Raises DisagreementError; whatever the variant itself raises is passed on.
    """
    inputs = variant.inputs(point, device, seed)
    call = variant.bind(inputs, point, tuning)
    results = [tensor.clone() for tensor in variant.results(inputs, call())]
    others: Row = {}
    for baseline in baselines:
        if baseline.op == variant.op:
            others |= _baseline(baseline, inputs, results, point, timer)
    time, work = timer.measure(call), variant.work(point)
    floor, limit = ceilings.floor_seconds(work.bytes, work.flops)
    row = {
        "p20_us": time.p20 * 1e6,
        "p50_us": time.p50 * 1e6,
        "p80_us": time.p80 * 1e6,
        "samples": time.samples,
        "host_us": timer.host_seconds(call) * 1e6,
        "gb_per_s": work.bytes / time.p50 / 1e9,
        "tflop_per_s": work.flops / time.p50 / 1e12,
        "share_of_ceiling": floor / time.p50,
        "limit": limit,
    }
    return {**row, **ceilings.row(), **others}


def _baseline(baseline: Baseline, inputs: Any, results: Sequence[Tensor], point: Point, timer: Timer) -> Row:
    name = baseline.name
    time = host = why = None
    try:
        call = baseline.bind(inputs, point)
        verdict = judge(baseline.results(inputs, call()), results, point.dtype)
        if verdict.passed:
            time, host = timer.measure(call).p50 * 1e6, timer.host_seconds(call) * 1e6
        else:
            why = f"disagrees: relative error {verdict.error:.2g}, bound {verdict.bound:g}"
            if baseline.trusted:
                raise DisagreementError(f"{name} {why}; nothing is timed")
    except UnsupportedError as error:
        why = str(error)
    except DisagreementError:
        raise
    except Exception as error:  # another project's code on a shape it may not know: its trouble is not ours
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return {f"{name}_us": time, f"{name}_host_us": host, f"{name}_note": why}
