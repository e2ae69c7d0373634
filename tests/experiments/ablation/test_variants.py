"""Every variant of `conf/variant` computes what its reference says, and a wrong one is found out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.conf import build, options

from experiments.ablation.check import check, relative_error
from experiments.ablation.point import Point
from experiments.ablation.variant.cascade import Cascade
from experiments.ablation.variant.copy_blocks import CopyBlocks
from experiments.ablation.variant.rope_scatter import RopeScatter
from experiments.ablation.variant.scatter import Scatter
from experiments.ablation.variant.scatter_quantised import ScatterQuantised
from experiments.ablation.variant.split_kv import SplitKv
from experiments.ablation.variant.varlen import Varlen
from kernels.tuning import load

TUNING = load("sm_90")
NEEDED: dict[str, dict[str, Any]] = {
    "cascade": {"context": 8448, "shared_prefix": 8192},
    "scatter_quantised": {"query_len": 64, "kv_dtype": "int8", "scales": "token"},
}


def point_for(name: str, **fields: Any) -> Point:
    """A point the variant can do."""
    return Point(**{"num_kv_heads": 2, **NEEDED.get(name, {"query_len": 5}), **fields})


@pytest.mark.parametrize("name", options("variant"))
def test_every_variant_passes_its_check_and_plans_its_launches(name, device):
    variant, point = build("variant", name), point_for(name)
    verdict = check(variant, point, TUNING, device)
    assert verdict.passed, verdict.describe()
    resolved = variant.resolve(point, TUNING, 132)
    launches = variant.launches(resolved, TUNING)
    assert launches
    assert all(argument.is_meta for argument in launches[0].args.values() if isinstance(argument, torch.Tensor))
    assert variant.work(resolved).bytes > 0


@pytest.mark.parametrize(
    ("variant", "point"),
    [
        (Varlen(invariant=True), Point(placement="strided", block_size=24, query_len=40)),
        (SplitKv(), Point(block_size=1, num_splits=16, gqa_ratio=3)),
        (SplitKv(), Point(kv_dtype="fp8e5m2", scales="tensor", num_splits=3)),
        (SplitKv(), Point(head_dim=80, num_splits=4, placement="contiguous", dtype="fp32")),
        (RopeScatter(interleaved=True), Point(query_len=30, block_size=3)),
        (CopyBlocks(num_layers=2), Point(placement="strided", batch=3)),
    ],
    ids=["invariant", "block 1", "fp8", "dim 80", "interleaved", "copy"],
)
def test_the_check_passes_away_from_the_defaults(variant, point, device):
    verdict = check(variant, point, TUNING, device)
    assert verdict.passed, verdict.describe()


class OffByALittle(Varlen):
    def bind(self, inputs, point, tuning):
        call = super().bind(inputs, point, tuning)
        return lambda: call() * 1.01


class LosesAToken(Scatter):
    def bind(self, inputs, point, tuning):
        inputs.slot_mapping[0] = -1
        return super().bind(inputs, point, tuning)

    def results(self, inputs, returned):
        inputs.slot_mapping[0] = inputs.slot_mapping[1] - 1
        return super().results(inputs, returned)


@pytest.mark.parametrize(("wrong", "name"), [(OffByALittle(), "varlen"), (LosesAToken(), "scatter")])
def test_a_variant_that_is_wrong_by_a_little_does_not_pass(wrong, name, device):
    assert not check(wrong, point_for(name), TUNING, device).passed


def test_not_a_number_and_another_shape_are_infinitely_wrong():
    ones = torch.ones(3)
    assert relative_error(ones * float("nan"), ones) == float("inf")
    assert relative_error(ones[:2], ones) == float("inf")
    assert relative_error(ones * 1.5, ones) == pytest.approx(0.5)


def test_every_check_draws_new_inputs_unless_told_which(device):
    point = point_for("scatter")
    assert check(Scatter(), point, TUNING, device).seed != check(Scatter(), point, TUNING, device).seed
    assert check(Scatter(), point, TUNING, device, seed=4).seed == 4


@pytest.mark.parametrize("query_len", [1, 3, 7])
def test_work_counts_every_pair_that_sees_each_other_and_every_byte_once(query_len):
    point = Point(
        batch=2, query_len=query_len, context=7, num_kv_heads=2, gqa_ratio=3, head_dim=16, dtype="fp16", block_size=2
    )
    pairs = sum(key <= query for query in range(7 - query_len, 7) for key in range(7))
    work = Varlen().work(point)
    assert work.flops == 2 * 6 * pairs * (2 * 16 + 2 * 16)
    assert work.bytes == 2 * 2 * 7 * 2 * 16 * 2 + 2 * 2 * query_len * 6 * 16 * 2
    shared = Point(**{**point.row(), "query_len": 1, "shared_prefix": 6})
    assert Varlen().work(shared).bytes == 2 * (6 + 2 * 1) * 2 * 16 * 2 + 2 * 2 * 6 * 16 * 2


def test_the_split_count_is_resolved_as_the_public_function_would_on_that_many_processors():
    few, many = (SplitKv().resolve(Point(batch=b), TUNING, 132).num_splits for b in (1, 512))
    assert few > many == 1
    assert SplitKv().resolve(Point(num_splits=7), TUNING, 132).num_splits == 7


@pytest.mark.parametrize(("variant", "field"), [(Cascade(), "shared_prefix"), (ScatterQuantised(), "kv_dtype")])
def test_a_variant_names_the_field_it_cannot_do_without(variant, field):
    with pytest.raises(ValueError, match=field):
        variant.resolve(Point(), TUNING, 132)


def test_fixed_tiles_take_the_place_of_tuned_ones():
    point = Point(tile_kv=32, num_warps=8)
    tiles, tuned = Varlen().tiles(point, TUNING), Varlen().tiles(Point(), TUNING)
    assert (tiles.tile_kv, tiles.num_warps) == (32, 8)
    assert (tiles.tile_q, tiles.num_stages) == (tuned.tile_q, tuned.num_stages)
