"""torch's index_copy of K and V into the pool, two calls. Knows nothing of rotation or quantising."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from experiments.ablation.baseline.base import Baseline, need_plain_cache
from experiments.ablation.point import Point
from experiments.ablation.variant.base import Call
from experiments.ablation.variant.write import WriteInputs


class TorchWrite(Baseline):
    """What one would write without a kernel."""

    name = "torch"
    op = "write"

    def bind(self, inputs: WriteInputs, point: Point) -> Call:
        need_plain_cache(point)
        pool, slots = inputs.pool, inputs.slot_mapping
        k_rows, v_rows = pool.k_cache.flatten(0, 1), pool.v_cache.flatten(0, 1)
        return lambda: (k_rows.index_copy_(0, slots, inputs.k), v_rows.index_copy_(0, slots, inputs.v))

    def results(self, inputs: WriteInputs, returned: Any) -> Sequence[Tensor]:
        return inputs.written()
