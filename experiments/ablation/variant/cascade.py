"""A prefix that the whole batch shares, read once. Knows nothing of forests deeper than that one node."""

from __future__ import annotations

from dataclasses import replace

import torch

from experiments.ablation.point import Point
from experiments.ablation.tensors import AttentionInputs
from experiments.ablation.variant.attention import Attention, scale_options, shape_of
from experiments.ablation.variant.base import Call, attention_tiles
from kernels.attention import cascade
from kernels.attention.forest import PrefixNode
from kernels.attention.prefix_work import lay_out
from kernels.attention.splits import num_processors
from kernels.launch import Launch
from kernels.shipped import DTYPES, cascade_launch
from kernels.tuning import AttentionConfig, Tuning


class Cascade(Attention):
    """`kernels.attention.cascade` over one node; `num_splits` splits the suffixes."""

    def __init__(self) -> None:
        super().__init__(invariant=False)

    def resolve(self, point: Point, tuning: Tuning, processors: int) -> Point:
        if not point.shared_prefix:
            raise ValueError("shared_prefix must be a positive multiple of block_size for cascade, got 0")
        return point

    def prefix_tiles(self, point: Point, tuning: Tuning) -> AttentionConfig:
        """Tiles of the shared part."""
        return attention_tiles("cascade", point, tuning, DTYPES[point.dtype].itemsize)

    def launches(self, point: Point, tuning: Tuning) -> list[Launch]:
        shape = replace(shape_of(point), seq_len=point.shared_prefix)
        return [cascade_launch(shape, self.prefix_tiles(point, tuning))]

    def bind(self, inputs: AttentionInputs, point: Point, tuning: Tuning) -> Call:
        tiles = self.prefix_tiles(point, tuning)
        blocks = inputs.pool.block_table[0, : point.shared_prefix // point.block_size].tolist()
        node = PrefixNode(0, point.shared_prefix, tuple(blocks), tuple(range(point.batch)))
        # laid out once per step for all layers, so no part of one layer's call
        plan = lay_out(
            [node], inputs.query_start_loc.tolist(), inputs.seq_lens.tolist(), num_heads=point.num_heads,
            num_kv_heads=point.num_kv_heads, block_size=point.block_size, device=torch.device(inputs.q.device),
            processors=num_processors(inputs.q), config=tiles,
        )  # fmt: skip
        own = replace(point, tile_q=None, tile_kv=None, num_warps=None, num_stages=None)
        options = {"config": tiles, "suffix_config": self.tiles(own, tuning), **scale_options(inputs)}
        return lambda: cascade.cascade(*inputs.args(), plan, num_splits=point.num_splits, **options)[0]
