"""Any sweep folder becomes one table and plots, or a sentence that says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest

from experiments.errors import UserError
from experiments.plots.series import draw_series
from experiments.plots.style import looks, render, spread
from experiments.record import RecordWriter
from experiments.report import Report, write_report

RATES = {"lru": 0.4, "fifo": 0.35, "belady": 0.6}


def put(folder: Path, **metrics: Any) -> None:
    """A finished run with these metrics."""
    size = metrics.get("block_size", 16)
    metrics = {
        "workload": "toy",
        "workload_fingerprint": "aaaa",
        "allocator": "hash_chain",
        "hasher": "builtin",
        "evictor": "lru",
        "block_size": size,
        "pool": "5%",
        "num_blocks": 1600 // size,
        "requests": 9,
        "refused": 0,
        "prompt_tokens": 99,
        "ceiling_token_hit_rate": 0.9,
        "token_hit_rate": 0.4,
        **metrics,
    }
    metrics.setdefault("pool_tokens", metrics["num_blocks"] * size)
    record = RecordWriter(folder, {"name": folder.name})
    record.begin()
    record.add("environment.json", b'{"cpu": "c", "python": "3", "git": null}')
    record.commit(metrics)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    for evictor, rate in RATES.items():
        for size in (16, 32):
            for share, pool in (("5%", 1600), ("10%", 3200), ("inf", float("inf"))):
                name = f"{evictor}-{size}-{share}"
                count, rate = (pool, 0.9) if share == "inf" else (pool // size, rate + pool / 1e5)
                put(
                    tmp_path / name,
                    evictor=evictor,
                    block_size=size,
                    pool=share,
                    num_blocks=count,
                    token_hit_rate=rate,
                )
    return write_report(tmp_path)


def test_a_sweep_becomes_a_table_and_three_plots(report: Report) -> None:
    assert {path.name for path in report.files} == {
        f"{name}.{suffix}"
        for name, suffixes in {
            "hit_rate_by_pool": ("png", "svg"),
            "hit_rate_by_block_size": ("png", "svg"),
            "gap_closed": ("png", "svg"),
            "report": ("parquet", "md"),
        }.items()
        for suffix in suffixes
    }
    frame = pandas.read_parquet(report.folder / "report.parquet")
    assert len(frame) == 18
    assert frame.num_blocks.max() == float("inf")
    assert "of prompt tokens" in (report.folder / "report.md").read_text()


def test_the_share_of_the_gap_is_0_for_lru_and_1_for_belady(report: Report) -> None:
    finite = report.frame[report.frame.pool_group == "5%"].groupby("policy").gap_closed.mean()
    assert finite["lru"] == 0
    assert finite["belady"] == 1
    assert finite["fifo"] < 0
    assert report.frame[report.frame.pool_group == "inf"].gap_closed.isna().all(), "no gap, no share of it"


def test_a_second_report_is_the_same_to_the_byte(report: Report) -> None:
    before = {path.name: path.read_bytes() for path in report.files}
    assert {path.name: path.read_bytes() for path in write_report(report.folder).files} == before


def test_runs_over_different_workloads_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "a")
    put(tmp_path / "b", workload_fingerprint="bbbb")
    with pytest.raises(UserError, match=r"2 different workloads.*do not compare"):
        write_report(tmp_path)


def test_broken_and_unfinished_runs_are_left_out_and_named(tmp_path: Path) -> None:
    put(tmp_path / "good")
    put(tmp_path / "cut")
    (tmp_path / "cut" / "metrics.json").write_text('{"a"')
    RecordWriter(tmp_path / "begun", {}).begin()
    report = write_report(tmp_path)
    assert len(report.frame) == 1
    assert "begun (the run did not finish)" in report.notes[0]
    assert "cut (metrics.json is not JSON)" in report.notes[0]


def test_a_folder_without_records_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no record of a finished run"):
        write_report(tmp_path)
    with pytest.raises(UserError, match="is no folder"):
        write_report(tmp_path / "nowhere")


def test_pools_counted_in_blocks_are_not_compared_across_block_sizes(tmp_path: Path) -> None:
    for size in (16, 32):
        put(tmp_path / str(size), block_size=size, pool="100", num_blocks=100)
    report = write_report(tmp_path)
    assert not report.plots
    assert any("block sizes are not compared" in note for note in report.notes)


def test_the_naive_allocator_is_no_policy(tmp_path: Path) -> None:
    put(tmp_path / "a", allocator="naive", token_hit_rate=0.0)
    put(tmp_path / "b")
    assert set(write_report(tmp_path).frame.policy) == {"no sharing", "lru"}


def test_a_policy_looks_the_same_in_every_plot_and_new_ones_need_no_edit() -> None:
    assert looks(["lru", "arc"])["lru"] == looks(["lru"])["lru"]
    assert len(set(looks(["arc", "s3fifo", "lru", "two_queue", "belady"]).values())) == 5


def test_labels_are_moved_apart_and_no_further_than_needed() -> None:
    assert spread([0.0, 5.0, 9.0], 1.0) == [0.0, 5.0, 9.0]
    places = spread([1.0, 1.0, 1.1, 7.0], 1.0)
    assert places == pytest.approx([1.0333 - 1, 1.0333, 1.0333 + 1, 7.0], abs=1e-3)


def test_the_plot_of_one_run_bears_gaps_and_an_unbounded_pool() -> None:
    series = [
        {"request": index, "hit_rate": 0.1, "window_hit_rate": None, "used_blocks": 1, "cached_blocks": index}
        | {"free_blocks": None, "evictions": 0, "age_at_hit": None, "age_at_eviction": None}
        for index in range(3)
    ]
    assert draw_series([], {}) == {}
    files = render(draw_series(series, {"ceiling_token_hit_rate": 0.5})["series"])
    assert files["png"][:4] == b"\x89PNG"
    assert files["svg"].startswith(b"<?xml")
