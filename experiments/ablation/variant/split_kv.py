"""Keys split over programs, then reduced. Knows nothing of when that pays: `kernels.attention.split_kv` does."""

from __future__ import annotations

from dataclasses import replace

from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs
from experiments.ablation.variant.attention import Attention, scale_options, shape_of
from experiments.ablation.variant.base import Call
from kernels.attention import split_kv
from kernels.attention.rows import query_grid
from kernels.attention.splits import choose_num_splits
from kernels.launch import Launch
from kernels.shipped import attention_launches, problem
from kernels.tuning import Tuning


class SplitKv(Attention):
    """`kernels.attention.split_kv`; one split is `varlen`, as it is there."""

    def resolve(self, point: Point, tuning: Tuning, processors: int) -> Point:
        if point.num_splits is not None:
            return point
        tiles = self.tiles(point, tuning)
        programs = query_grid(problem(shape_of(point)), tiles)[1] * point.num_kv_heads
        return replace(point, num_splits=choose_num_splits(programs, point.context, tiles.tile_kv, processors))

    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        splits = point.num_splits or 1
        return attention_launches(
            "varlen" if splits == 1 else "split_kv", shape_of(point), self.tiles(point, tuning),
            num_splits=splits, invariant=self.invariant,
        )  # fmt: skip

    def bind(self, inputs: AttentionInputs, point: Point, tuning: Tuning) -> Call:
        options = {"config": self.tiles(point, tuning), "invariant": self.invariant, **scale_options(inputs)}
        return lambda: split_kv.attention(*inputs.args(), num_splits=point.num_splits, **options)[0]
