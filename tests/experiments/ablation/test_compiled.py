"""What is compiled is compiled once per different code, in a child, and remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.ablation import compiled
from experiments.ablation.compiled import Study, key_of, model
from experiments.ablation.point import Point
from experiments.ablation.variant.scatter import Scatter
from experiments.ablation.variant.split_kv import SplitKv
from experiments.errors import UserError
from kernels.targets import find_target
from kernels.tuning import load

TUNING, TARGET = load("sm_90"), find_target("sm_90")
POINT = Point(num_splits=4)


def key(point: Point, target: str = "sm_90") -> str:
    return key_of(SplitKv().launches(point, TUNING)[0], find_target(target))


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({"batch": 128}, True),
        ({"context": 8192}, True),
        ({"placement": "contiguous"}, True),
        ({"num_splits": 6}, True),
        ({"num_splits": 16}, False),
        ({"block_size": 8}, False),
        ({"num_warps": 8}, False),
        ({"num_stages": 1}, False),
        ({"dtype": "fp16"}, False),
        ({"gqa_ratio": 8}, False),
    ],
    ids=str,
)
def test_points_share_a_report_just_where_the_compiler_sees_the_same(fields, same):
    assert (key(replace(POINT, **fields)) == key(POINT)) == same


def test_targets_do_not_share_a_report():
    assert key(POINT) != key(POINT, "sm_80")


def test_a_report_is_made_in_a_child_once_and_then_read(tmp_path, monkeypatch):
    point = Point(batch=2, query_len=64, context=64)
    first = Study(Scatter(), point, TUNING, TARGET, str(tmp_path)).row()
    assert first["registers"] > 0
    assert first["spills"] == 0
    assert first["load_bytes"] == 16
    assert first["programs"] == 8 * 8
    monkeypatch.setattr(compiled, "_start", lambda *a: pytest.fail("compiled again"))
    larger = Study(Scatter(), replace(point, batch=4), TUNING, TARGET, str(tmp_path)).row()
    assert larger["programs"] == 16 * 8
    assert larger["registers"] == first["registers"]
    (stored,) = (tmp_path / "aot").iterdir()
    stored.write_text('{"registers": ')
    with pytest.raises(pytest.fail.Exception):
        Study(Scatter(), point, TUNING, TARGET, str(tmp_path))


def test_what_does_not_compile_is_said_in_one_sentence_and_not_remembered(tmp_path):
    point = Point(kv_dtype="fp8e4m3", scales="tensor", num_splits=4)  # Triton has no conversion to e4m3 on Ampere
    study = Study(SplitKv(), point, TUNING, find_target("sm_80"), str(tmp_path))
    with pytest.raises(UserError, match="does not compile for sm_80"):
        study.row()
    assert not list(tmp_path.rglob("*.json"))


def test_the_model_is_the_slower_of_bytes_and_flops_on_the_data_sheet():
    assert model({"useful_bytes": 4.8e12, "useful_flops": 1}, POINT, TARGET) == {
        "model_floor_us": pytest.approx(1e6), "model_limit": "bytes",
    }  # fmt: skip
    assert model({"useful_bytes": 1, "useful_flops": 67e12}, replace(POINT, dtype="fp32"), TARGET) == {
        "model_floor_us": pytest.approx(1e6), "model_limit": "flops",
    }  # fmt: skip
