"""Does a variant compute what its plain reference says? Asked on fresh random inputs, before any number is believed.

The call is a small sibling of the point (`point.small`): same block size, tiles, dtypes, head group and placement over
a pool whose unwritten slots hold NaN. In Triton's interpreter bf16 is checked as fp16, which that one multiplies right.

Knows nothing of clocks or compilers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from experiments.ablation.point import Point, small
from experiments.ablation.variant.base import Variant
from kernels.tuning import Tuning

BOUNDS = {"fp32": 1e-5, "fp16": 3e-3, "bf16": 2e-2}
"""Largest ‖out − reference‖ / ‖reference‖ that counts as agreement."""
QUANTISED_BOUND = 2e-2
"""Where the reference rounds to 8 bits too, a tie broken the other way is one step of many."""


@dataclass(frozen=True, slots=True)
class Check:
    """`error`: the largest relative error of any result, inf where one is not finite; `dtype` it was checked in."""

    passed: bool
    error: float
    bound: float
    dtype: str
    seed: int = 0

    def row(self) -> dict[str, Any]:
        """As columns of the table."""
        return {"check_passed": self.passed, "check_error": self.error, "check_dtype": self.dtype}

    def describe(self) -> str:
        """One sentence for a person."""
        return f"relative error {self.error:.2g} against the plain reference in {self.dtype}, bound {self.bound:g}"


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter in this process."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def check(variant: Variant, point: Point, tuning: Tuning, device: torch.device, seed: int | None = None) -> Check:
    """Run `variant` on a small sibling of `point` against its reference; `seed` None draws a new one each time."""
    call = small(point)
    if interpreting() and call.dtype == "bf16":
        call = replace(call, dtype="fp16")
    seed = int(torch.seed() % 2**31) if seed is None else seed
    inputs = variant.inputs(call, device, seed)
    expected = variant.reference(inputs)
    actual = variant.results(inputs, variant.bind(inputs, call, tuning)())
    return replace(judge(actual, expected, call.dtype, quantised=call.kv_dtype is not None), seed=seed)


def judge(actual: Sequence[Tensor], expected: Sequence[Tensor], dtype: str, quantised: bool = False) -> Check:
    """Compare results pairwise; NaN and infinities never pass."""
    bound = max(BOUNDS[dtype], QUANTISED_BOUND if quantised else 0.0)
    errors = [relative_error(a, e) for a, e in zip(actual, expected, strict=True)]
    error = max(errors)
    return Check(error <= bound, error, bound, dtype)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """‖actual − expected‖ / ‖expected‖ in fp32; inf where `actual` is not finite or has another shape."""
    if actual.shape != expected.shape:
        return float("inf")
    actual, expected = actual.float(), expected.to(actual.device).float()
    if not bool(torch.isfinite(actual).all()):
        return float("inf")
    return float((actual - expected).norm() / expected.norm().clamp_min(1e-30))
