"""A record is whole or it is nothing."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from experiments.atomic import json_line, write_whole
from experiments.record import BrokenRecord, RecordWriter, is_finished, read_record

CONFIG = {"block_size": 16, "num_blocks": float("inf"), "workload": {"path": "ü"}}
METRICS = {"token_hit_rate": 0.5, "num_blocks": float("inf"), "seconds": float("nan")}


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    record = RecordWriter(tmp_path, CONFIG)
    record.begin()
    record.add_table("results", [METRICS])
    record.add("environment.json", b"{}")
    record.commit(METRICS)
    return tmp_path


def test_a_committed_record_is_finished_and_reads_back(finished: Path) -> None:
    assert is_finished(finished, CONFIG)
    assert read_record(finished).metrics == {"token_hit_rate": 0.5, "num_blocks": "inf", "seconds": "nan"}


def test_a_record_of_another_config_is_not_finished(finished: Path) -> None:
    assert not is_finished(finished, {**CONFIG, "block_size": 32})


@pytest.mark.parametrize(
    "name", ["metrics.json", "manifest.json", "results.parquet", "config.yaml", "environment.json"]
)
@pytest.mark.parametrize("damage", ["removed", "cut", "emptied", "changed"])
def test_a_damaged_file_breaks_the_record(finished: Path, name: str, damage: str) -> None:
    path = finished / name
    data = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(
            {"cut": data[: len(data) // 2], "emptied": b"", "changed": data[:-2] + b"?" + data[-1:]}[damage]
        )
    assert not is_finished(finished, CONFIG)
    with pytest.raises(BrokenRecord):
        read_record(finished)


def test_a_run_that_failed_after_an_earlier_one_had_finished_counts_as_failed(finished: Path) -> None:
    (finished / "failed.json").write_text("{}")
    assert not is_finished(finished, CONFIG)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "metrics.json"
    write_whole(path, b"old")

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left") as error:
        write_whole(path, b"new")
    assert error.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]
    assert path.read_bytes() == b"old"


def test_what_a_killed_run_left_is_swept_up(tmp_path: Path) -> None:
    (tmp_path / ".series.parquet.123.tmp").write_bytes(b"half")
    RecordWriter(tmp_path, CONFIG).begin()
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_numbers_that_json_lacks_become_words() -> None:
    text = json_line({"a": [float("inf"), -float("inf"), float("nan")], "b": None, "c": True})
    assert json.loads(text) == {"a": ["inf", "-inf", "nan"], "b": None, "c": True}


def test_a_record_made_from_other_sources_or_another_trace_is_not_finished(finished: Path) -> None:
    made = read_record(finished).environment
    assert is_finished(finished, CONFIG, made)
    for key in made:
        assert not is_finished(finished, CONFIG, {**made, key: "another"})
    assert not is_finished(finished, CONFIG, {"workload_fingerprint": "never written down"})
