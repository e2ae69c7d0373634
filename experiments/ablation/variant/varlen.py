"""One program per tile of query rows walks all its keys. Knows nothing of splitting them."""

from __future__ import annotations

from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs
from experiments.ablation.variant.attention import Attention, scale_options, shape_of
from experiments.ablation.variant.base import Call
from kernels.attention import varlen
from kernels.launch import Launch
from kernels.shipped import attention_launches
from kernels.tuning import Tuning


class Varlen(Attention):
    """`kernels.attention.varlen`."""

    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        return attention_launches("varlen", shape_of(point), self.tiles(point, tuning), invariant=self.invariant)

    def bind(self, inputs: AttentionInputs, point: Point, tuning: Tuning) -> Call:
        options = {"config": self.tiles(point, tuning), "invariant": self.invariant, **scale_options(inputs)}
        return lambda: varlen.attention(*inputs.args(), **options)[0]
