"""One launch builder: what is known of a call is said once, and a kernel's signature picks from it.

    strided("k", k_cache, "block", "slot", "head")   says   k_ptr, stride_k_block, stride_k_slot, stride_k_head

A launcher hands such *facts* to `build`, which takes those the kernel's parameters name, in the order of the signature.
Kernels over the same tensors share one list of facts whatever each of them asks for, so a new kernel packs nothing but
its own arguments. A parameter nobody speaks of, or an own argument no parameter asks for, is an error at once.

Knows nothing of any particular kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import Tensor

from kernels.launch import FP_FUSION, Launch

Facts = dict[str, Any]
"""Arguments by the names in kernels' signatures."""


def strided(name: str, tensor: Tensor | None, *dims: str) -> Facts:
    """`<name>_ptr`, and `stride_<name>_<dim>` of its leading dimensions, in elements. None: no pointer, strides 0."""
    strides = (0,) * len(dims) if tensor is None else tensor.stride()
    facts: Facts = dict(zip(_stride_names(name, dims), strides, strict=False))
    facts[name + "_ptr"] = tensor
    return facts


@cache  # a launch is on the host's critical path: names are put together once
def _stride_names(name: str, dims: tuple[str, ...]) -> list[str]:
    return [f"stride_{name}_{dim}" for dim in dims]


def build(
    kernel: Any,
    grid: tuple[int, ...],
    facts: Mapping[str, Any],
    *,
    num_warps: int = 4,
    num_stages: int = 2,
    fp_fusion: bool = FP_FUSION,
    **own: Any,
) -> Launch:
    """The launch of `kernel`: each parameter from `own` arguments or from the shared `facts`.

    Raises TypeError naming the parameters that nobody gives, or the own arguments that the kernel does not take.
    """
    given = {**facts, **own}
    names = kernel.arg_names
    try:
        args = dict(zip(names, map(given.__getitem__, names), strict=True))
    except KeyError:
        missing = [name for name in names if name not in given]
        raise TypeError(f"{kernel.__name__} asks for {', '.join(missing)}, which no argument gives") from None
    if not own.keys() <= args.keys():
        unknown = sorted(own.keys() - args.keys())
        raise TypeError(f"{kernel.__name__} has no parameter {', '.join(unknown)}")
    return Launch(kernel, grid, args, num_warps, num_stages, fp_fusion)
