"""A kernel sweep becomes one table and figures, timed or compiled, and never a mixture."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from experiments.ablation.point import Point
from experiments.ablation.report import short_table
from experiments.errors import UserError
from experiments.plots.ablation import baselines_of, draw_ablation, swept_axes
from experiments.record import RecordWriter
from experiments.report import write_report

COMPILED = {
    "check_passed": True, "check_error": 3e-4, "device": "H200 (sm_90), not run", "registers": 128, "spills": 0,
    "programs_per_processor": 3, "occupancy": 0.19, "bytes_in_flight": 98304, "bytes_needed": 21818, "k_load_bytes": 16,
    "v_load_bytes": 16, "load_bytes": 16, "matrix_instruction": "HMMA.16816", "loop_instructions": 640,
    "code_bytes": 20000, "shared_bytes": 39424, "programs": 512, "waves": 1.3, "tile_q": 16, "tile_kv": 64,
    "model_floor_us": 224.0, "model_limit": "bytes", "splits": 1,
}  # fmt: skip
TIMED = {
    "check_passed": True, "check_error": 3e-4, "device": "NVIDIA H200", "p20_us": 90.0, "p50_us": 100.0,
    "p80_us": 120.0, "host_us": 40.0, "gb_per_s": 4000.0, "tflop_per_s": 10.0, "share_of_ceiling": 0.92,
    "limit": "bytes", "sdpa_us": 110.0, "sdpa_note": None, "flex_us": None, "flex_note": "a slot has one owner",
    "splits": 1,
}  # fmt: skip


def put(folder: Path, found: dict, report: str | None = "experiments.ablation.report.write_report", **fields) -> None:
    record = RecordWriter(folder, {"report": report} if report else {})
    record.begin()
    record.add("environment.json", b'{"packages": {"torch": "2.13"}, "git": null, "source_sha256": "a"}')
    point = {"op": "decode", "variant": "split_kv", "kernel": "sm_90", **Point().row()}
    record.commit({**point, **found, **fields})


@pytest.mark.parametrize(("found", "figure"), [(COMPILED, "compiled"), (TIMED, "time")], ids=["compiled", "timed"])
def test_points_become_a_table_and_a_figure_against_what_was_swept(tmp_path, found, figure):
    for size in (64, 8, 16):
        put(tmp_path / str(size), found, block_size=size)
    report = write_report(tmp_path)
    names = {path.name for path in report.files}
    assert names == {f"{figure}_by_block_size.png", f"{figure}_by_block_size.svg", "report.parquet", "report.md"}
    frame = pandas.read_parquet(tmp_path / "report.parquet")
    assert frame.block_size.tolist() == [8, 16, 64]
    text = (tmp_path / "report.md").read_text()
    assert ("nothing here was run on a GPU" in text) == (figure == "compiled")
    assert ("flex has no time at 3 points: a slot has one owner" in text) == (figure == "time")
    assert report.summary()["points"] == 3
    assert len(report.rows()) == 3
    before = {path.name: path.read_bytes() for path in report.files}
    assert {path.name: path.read_bytes() for path in write_report(tmp_path).files} == before


def test_splits_against_batch_and_context_have_a_figure_of_their_own(tmp_path):
    for batch in (1, 64):
        for context in (1024, 8192):
            for splits in (None, 1, 4):
                name, chosen = f"{batch}-{context}-{splits}", splits or 2
                put(tmp_path / name, COMPILED, batch=batch, context=context, num_splits=splits, splits=chosen)
    report = write_report(tmp_path)
    assert [path.name for path in report.plots] == ["splits.png", "splits.svg"]
    auto = next(row for row in report.rows() if row["num_splits"] is None and row["context"] == 1024)
    assert auto["walk"] == 2 * 8, "two waves of 1024 / 64 / 2 key tiles"


def test_columns_that_say_the_same_everywhere_are_left_out_of_the_table():
    rows = [{"op": "decode", **Point(block_size=b).row(), **COMPILED, "registers": b} for b in (8, 16)]
    columns, cells = short_table(pandas.DataFrame(rows))
    assert columns == ["block_size", "regs"]
    assert cells == [["8", "8"], ["16", "16"]]


def test_points_of_two_devices_are_refused(tmp_path):
    put(tmp_path / "a", TIMED)
    put(tmp_path / "b", COMPILED)
    with pytest.raises(UserError, match="points of 2 devices, which do not compare"):
        write_report(tmp_path)


def test_kernel_points_and_replays_are_refused_together(tmp_path):
    put(tmp_path / "a", TIMED)
    put(tmp_path / "b", {}, report=None)
    with pytest.raises(UserError, match="runs of different experiments"):
        write_report(tmp_path)


def test_what_spills_or_does_not_fit_is_noted(tmp_path):
    put(tmp_path / "a", COMPILED, spills=16, block_size=8)
    put(tmp_path / "b", COMPILED, programs_per_processor=0, waves=None)
    text = "\n".join(write_report(tmp_path).notes)
    assert "1 points spill registers" in text
    assert "1 points do not fit on a processor at all" in text


def test_axes_are_what_differs_and_baselines_what_has_a_time():
    frame = pandas.DataFrame([{**Point(batch=b).row(), **TIMED, "op": "x", "variant": v} for b in (1, 2) for v in "ab"])
    assert swept_axes(frame) == ["batch", "variant"]
    assert baselines_of(frame) == ["sdpa"]
    assert list(draw_ablation(frame)) == ["time_by_batch"]
    assert draw_ablation(frame[:1]) == {}
