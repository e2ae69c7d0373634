"""What a GPU session measures, most wanted first: what no longer fits in the time is at the end.

The shapes are those of the project's speed goals: 32 query heads over 8 KV heads of 128, bf16, on one GPU.

Knows nothing of clocks, goals or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from experiments.ablation.baseline.base import Baseline
from experiments.ablation.baseline.conch import Conch
from experiments.ablation.baseline.flashinfer import FlashInfer
from experiments.ablation.baseline.flex import Flex
from experiments.ablation.baseline.sdpa import Sdpa
from experiments.ablation.baseline.torch_copy import TorchCopy
from experiments.ablation.baseline.torch_write import TorchWrite
from experiments.ablation.point import Point
from experiments.ablation.variant.base import Variant
from experiments.ablation.variant.cascade import Cascade
from experiments.ablation.variant.copy_blocks import CopyBlocks
from experiments.ablation.variant.rope_scatter import RopeScatter
from experiments.ablation.variant.scatter import Scatter
from experiments.ablation.variant.scatter_quantised import ScatterQuantised
from experiments.ablation.variant.split_kv import SplitKv
from experiments.ablation.variant.varlen import Varlen

CONTEXTS = (4096, 8192, 16384, 32768)
BLOCK_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 128, 256)
SPLITS = (None, 1, 2, 4, 8, 16, 32, 64)
SUFFIX = 256


@dataclass(frozen=True, slots=True)
class Item:
    """One point to be measured, by which variant, beside whom."""

    variant: Variant
    point: Point
    baselines: Sequence[Baseline] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """Points that make one table and one figure."""

    name: str
    items: Sequence[Item] = field(default_factory=tuple)


def session_plan() -> list[Section]:
    """All sections, in order."""
    split = SplitKv()
    dense = (Sdpa(), Sdpa("flash"), Conch(), FlashInfer())
    return [
        Section(
            "decode",
            [Item(split, Point(block_size=b, context=c), dense) for b, c in product((16, 8, 128), CONTEXTS)],
        ),
        Section("overhead", [Item(split, Point(batch=1, context=1024), dense)]),
        Section("write", _writes()),
        Section(
            "prefill",
            [
                Item(
                    Varlen(),
                    Point(batch=1, query_len=n, context=n),
                    (Sdpa(), Sdpa("flash"), Sdpa("cudnn"), Sdpa("efficient"), Conch(), FlashInfer()),
                )
                for n in (8192, 2048)
            ],
        ),
        Section("cascade", _cascades()),
        Section("block_size", [Item(split, Point(block_size=b, context=8192)) for b in BLOCK_SIZES]),
        Section(
            "splits",
            [
                Item(split, Point(batch=b, context=c, num_splits=n))
                for c, b, n in product((1024, 8192, 65536), (1, 8, 64), SPLITS)
            ],
        ),
        Section("flex", [Item(split, Point(block_size=b), (Flex(),)) for b in (128, 16)]),
        Section("placement", [Item(split, Point(placement=p)) for p in ("contiguous", "strided", "shuffled")]),
        Section("cache", _caches()),
        Section("tiles_decode", _tiles(split, Point(context=8192), (16,), (32, 64, 128), (2, 4, 8), (2, 3, 5))),
        Section(
            "tiles_prefill",
            _tiles(Varlen(), Point(batch=1, query_len=8192, context=8192), (64, 128), (32, 64, 128), (4, 8), (2, 3)),
        ),
    ]


def _writes() -> list[Item]:
    tokens = Point(batch=8, query_len=8192, context=8192)
    fp8 = Point(batch=8, query_len=8192, context=8192, kv_dtype="fp8e4m3", scales="token")
    return [
        Item(Scatter(), tokens, (TorchWrite(),)),
        Item(RopeScatter(), tokens),
        Item(ScatterQuantised(), fp8),
        Item(CopyBlocks(), Point(batch=256), (TorchCopy(),)),
    ]


def _cascades() -> list[Item]:
    """Each shared prefix read once, and by everybody; the largest also without sharing any block."""
    items = []
    for prefix, batch in product((8192, 2048, 512), (64, 16, 4)):
        shared = Point(batch=batch, context=prefix + SUFFIX, shared_prefix=prefix)
        items += [Item(Cascade(), shared), Item(SplitKv(), shared)]
        if len(items) == 2:
            items.append(Item(SplitKv(), Point(batch=batch, context=prefix + SUFFIX)))
    return items


def _caches() -> list[Item]:
    kinds = ((None, "none"), ("fp8e4m3", "tensor"), ("fp8e4m3", "token"), ("int8", "token"))
    items = [Item(SplitKv(), Point(context=8192, kv_dtype=dtype, scales=scales)) for dtype, scales in kinds]
    return [*items, Item(SplitKv(invariant=True), Point(context=8192))]


def _tiles(
    variant: Variant,
    point: Point,
    tile_q: Sequence[int],
    tile_kv: Sequence[int],
    num_warps: Sequence[int],
    num_stages: Sequence[int],
) -> list[Item]:
    return [
        Item(variant, replace(point, tile_q=q, tile_kv=kv, num_warps=warps, num_stages=stages))
        for q, kv, warps, stages in product(tile_q, tile_kv, num_warps, num_stages)
    ]
