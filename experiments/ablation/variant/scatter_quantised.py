"""K and V quantised on their way into the pool. Knows nothing of calibration."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from experiments.ablation.point import Point
from experiments.ablation.variant.attention import shape_of
from experiments.ablation.variant.base import Call
from experiments.ablation.variant.write import Write, WriteInputs
from kernels.launch import Launch
from kernels.shipped import write_launch
from kernels.tuning import Tuning
from kernels.write import naive, scatter_quantised


class ScatterQuantised(Write):
    """`kernels.write.scatter_quantised`; needs `kv_dtype` and `scales`."""

    def resolve(self, point: Point, tuning: Tuning, processors: int) -> Point:
        if point.kv_dtype is None or point.scales == "none":
            raise ValueError(
                f"kv_dtype and scales must be given for scatter_quantised (kv_dtype=fp8e4m3 scales=token), "
                f"got {point.kv_dtype} and {point.scales}"
            )
        return point

    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        return [write_launch("scatter_quantised", shape_of(point))]

    def bind(self, inputs: WriteInputs, point: Point, tuning: Tuning) -> Call:
        i, p = inputs, inputs.pool
        assert p.k_scale is not None
        assert p.v_scale is not None
        args = (i.k, i.v, p.k_cache, p.v_cache, p.k_scale, p.v_scale, i.slot_mapping)
        return lambda: scatter_quantised.scatter_quantised(*args)

    def reference(self, inputs: WriteInputs) -> Sequence[Tensor]:
        i = inputs.to_cpu()
        p = i.pool
        assert p.k_scale is not None
        assert p.v_scale is not None
        naive.scatter_quantised(i.k, i.v, p.k_cache, p.v_cache, p.k_scale, p.v_scale, i.slot_mapping)
        return i.written()
