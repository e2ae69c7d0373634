"""K and V into their slots, nothing else. Knows nothing of rotation."""

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
from kernels.write import naive, scatter


class Scatter(Write):
    """`kernels.write.scatter`."""

    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        return [write_launch("scatter", shape_of(point))]

    def bind(self, inputs: WriteInputs, point: Point, tuning: Tuning) -> Call:
        pool = inputs.pool
        return lambda: scatter.scatter(inputs.k, inputs.v, pool.k_cache, pool.v_cache, inputs.slot_mapping)

    def reference(self, inputs: WriteInputs) -> Sequence[Tensor]:
        inputs = inputs.to_cpu()
        naive.scatter(inputs.k, inputs.v, inputs.pool.k_cache, inputs.pool.v_cache, inputs.slot_mapping)
        return inputs.written()
