"""torch's indexing, one call per pool. Knows nothing of launching once for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from experiments.ablation.baseline.base import Baseline
from experiments.ablation.point import Point
from experiments.ablation.variant.base import Call
from experiments.ablation.variant.copy_blocks import CopyInputs


class TorchCopy(Baseline):
    """What one would write without a kernel."""

    name = "torch"
    op = "copy"
    trusted = True

    def bind(self, inputs: CopyInputs, point: Point) -> Call:
        src, dst = inputs.src_ids.long(), inputs.dst_ids.long()

        def call() -> None:
            for pool in inputs.pools:
                pool.index_copy_(0, dst, pool.index_select(0, src))

        return call

    def results(self, inputs: CopyInputs, returned: Any) -> Sequence[Tensor]:
        return inputs.pools
