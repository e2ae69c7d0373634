"""Trackers say what the record says."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import wandb
from hydra.utils import instantiate
from omegaconf import OmegaConf
from pandas import DataFrame
from support import toy_lab
from support.conf import CONF, options
from wandb.proto import wandb_internal_pb2

from experiments.errors import UserError
from experiments.job import tracked
from experiments.tracker.base import Tracker
from experiments.tracker.jsonl import JsonLines
from experiments.tracker.wandb import WandB

PIECE = 32768
"""Bytes: W&B's offline file is cut into pieces of this size, as LevelDB's log is."""


def offline_records(path: Path) -> Iterator[Any]:
    """The protobuf records of an offline run's file: a 7-byte header, then chunks of (checksum, length, kind, data)."""
    data, at, parts = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if PIECE - at % PIECE < 7:
            at += PIECE - at % PIECE
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last of several
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def values(items: Sequence[Any]) -> dict[str, Any]:
    """Top-level keys of a summary or history record."""
    keys = {(item.key or item.nested_key[0]): item for item in items if item.key or len(item.nested_key) == 1}
    return {key: json.loads(item.value_json) for key, item in keys.items()}


def read_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], Any, int]:
    """(summary, history, run, exit code) of the only offline run in a folder."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    summary: dict[str, Any] = {}
    history, run, code = [], None, -1
    for record in offline_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "summary":
            summary |= values(record.summary.update)
        elif kind == "history":
            history.append(values(record.history.item))
        elif kind == "run":
            run = record.run
        elif kind == "exit":
            code = record.exit.exit_code
    return summary, history, run, code


def test_the_offline_wandb_run_holds_the_numbers_of_the_record(tmp_path: Path) -> None:
    toy_lab.make_toy_lab(tmp_path)
    code, out, err = toy_lab.run(tmp_path, "sweep=grid", "tracker=wandb", "evictor=belady", "block_size=16,32")
    assert code == 0, err
    folder = Path(toy_lab.last_json(out)["folder"])
    metrics = json.loads((folder / "block_size=16" / "metrics.json").read_text())
    summary, history, run, exit_code = read_run(folder / "block_size=16")

    assert {key: summary[key] for key in metrics} == metrics
    assert [row["hit_rate"] for row in history if "hit_rate" in row] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert [row["age"] for row in history if "age" in row] == [1.5] * 3
    assert exit_code == 0
    assert (run.run_group, run.display_name) == ("grid", "block_size=16")
    config = {update.key: json.loads(update.value_json) for update in run.config.update}
    assert config["block_size"] == 16
    assert list(folder.glob("block_size=16/wandb/offline-run-*/files/media/table/results*"))
    assert read_run(folder)[0]["runs"] == 2, "the sweep has a run of its own, with its report"


@pytest.mark.parametrize("frame", [False, True])
def test_a_table_longer_than_wandb_keeps_is_cut_before_it_is_built_and_said(
    frame: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert WandB.most_rows == wandb.Table.MAX_ROWS, "W&B drops rows beyond this without a word"
    rows = [{"block": index, "age": None if index % 2 else index} for index in range(WandB.most_rows + 1)]
    tables = tracked({"ledger": DataFrame(rows) if frame else rows, "results": rows[:1]}, WandB.most_rows)
    assert "first 10,000 of 10,001 rows of ledger" in capsys.readouterr().err
    with WandB("pagelab") as tracker:
        tracker.start(tmp_path, "name", None, {})
        tracker.finish({}, tables, [])
    (file,) = tmp_path.glob("wandb/offline-run-*/files/media/table/ledger*")
    assert json.loads(file.read_text())["data"] == [[row["block"], row["age"]] for row in rows[:-1]]
    assert tracked({"ledger": rows}, JsonLines.most_rows) == {"ledger": []}
    assert capsys.readouterr().err == "", "who keeps no table is not short of rows"


def test_a_failing_job_closes_its_wandb_run_as_failed(tmp_path: Path) -> None:
    def failing() -> None:
        with WandB("pagelab") as tracker:
            tracker.start(tmp_path, "name", None, {})
            tracker.log({"request": 0})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        failing()
    deadline = monotonic() + 60
    while read_run(tmp_path)[3] == -1 and monotonic() < deadline:  # W&B's own process writes the end of the file
        sleep(0.1)
    assert read_run(tmp_path)[3] == 1


def test_wandb_online_without_a_key_is_refused_and_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb, "login", lambda *, prompt: prompt)
    with pytest.raises(UserError, match="WANDB_API_KEY"):
        WandB("pagelab", "online").start(tmp_path, "name", None, {})


def test_the_lines_of_jsonl_are_the_rows(tmp_path: Path) -> None:
    rows = [{"request": 0, "hit_rate": 0.25}, {"request": 9, "hit_rate": None}]
    with JsonLines() as tracker:
        tracker.start(tmp_path, "name", None, {})
        for row in rows:
            tracker.log(row)
            assert (tmp_path / "series.jsonl").read_bytes().endswith(b"}\n"), "whole lines at any time"
        tracker.finish({}, {}, [])
    assert [json.loads(line) for line in (tmp_path / "series.jsonl").read_text().splitlines()] == rows


def test_a_write_that_a_full_disk_cut_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    tracker = JsonLines()
    tracker.start(tmp_path, "name", None, {})
    tracker.log({"request": 0})

    def half(file: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", full)
        return real(file, data[: len(data) // 2])

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        tracker.log({"request": 1})
    tracker.abort()
    assert (tmp_path / "series.jsonl").read_text() == '{"request": 0}\n'


@pytest.mark.parametrize("option", options("tracker"))
def test_every_tracker_can_be_aborted_at_any_time(option: str, tmp_path: Path) -> None:
    tracker: Tracker = instantiate(OmegaConf.load(CONF / "tracker" / f"{option}.yaml"))
    tracker.abort()
    tracker.start(tmp_path, "name", "group", {"a": 1})
    tracker.log({"request": 0, "hit_rate": 0.5})
    tracker.abort()
    tracker.abort()
