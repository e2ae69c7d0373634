"""A sweep loses nothing that was finished, and says what failed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support import toy_lab

from experiments.sweep_names import job_folder, safe_name


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    toy_lab.make_toy_lab(tmp_path)
    return tmp_path


def test_a_sweep_killed_halfway_does_only_the_rest_when_run_again(lab: Path) -> None:
    sweep = toy_lab.start(lab, "sweep=grid", "sleep=0.4")
    deadline = time.monotonic() + 60
    while len(list(lab.glob("runs/grid/*/*/metrics.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.communicate(timeout=60)
    done = len(list(lab.glob("runs/grid/*/*/metrics.json")))
    assert 2 <= done < 6
    (lab / "calls").unlink()

    code, out, err = toy_lab.run(lab, "sweep=grid", "sleep=0.4")
    summary = toy_lab.last_json(out)
    assert code == 0, err
    assert (summary["jobs"], summary["finished"], summary["skipped"]) == (6, 6 - done, done)
    assert len(toy_lab.calls(lab)) == 6 - done
    assert not list(lab.rglob("*.tmp"))
    assert not list(lab.rglob(".progress"))


def test_workers_do_not_outlive_a_sweep_whose_parent_was_killed(lab: Path) -> None:
    sweep = toy_lab.start(lab, "sweep=grid", "sleep=30")
    deadline = time.monotonic() + 60
    while len(toy_lab.calls(lab)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.communicate(timeout=10)  # ends once no worker holds its output open


def test_a_finished_sweep_runs_nothing_again_except_what_is_broken(lab: Path) -> None:
    command = ("sweep=grid", "evictor=lru,belady")
    first = toy_lab.last_json(toy_lab.run(lab, *command)[1])
    assert first["finished"] == 4
    folder = Path(first["folder"])
    (folder / "block_size=16,evictor=lru" / "metrics.json").write_text('{"token_hit_rate": 0.')
    (folder / "block_size=32,evictor=lru" / "series.parquet").unlink()
    (lab / "calls").unlink()

    second = toy_lab.last_json(toy_lab.run(lab, *command)[1])
    assert (second["finished"], second["skipped"]) == (2, 2)
    assert toy_lab.calls(lab) == ["lru 16", "lru 32"]


def test_a_failing_job_does_not_stop_the_others_and_is_told(lab: Path) -> None:
    code, out, err = toy_lab.run(lab, "sweep=grid", "fail=lru")
    summary = toy_lab.last_json(out)
    assert code == 1
    assert (summary["finished"], summary["failed"]) == (4, 2)
    assert "failed: block_size=16,evictor=lru: told to fail" in err
    assert "Traceback" not in err


def test_an_interrupted_sweep_ends_with_130_and_keeps_what_was_finished(lab: Path) -> None:
    sweep = toy_lab.start(lab, "sweep=grid", "sleep=0.4")
    deadline = time.monotonic() + 60
    while not list(lab.glob("runs/grid/*/*/metrics.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(sweep.pid, signal.SIGINT)
    _, err = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert list(lab.glob("runs/grid/*/*/metrics.json"))


def test_the_launcher_does_not_matter_and_swept_workloads_are_reported_apart(lab: Path) -> None:
    code, out, err = toy_lab.run(lab, "-m", "workload=one,two", "evictor=lru,belady")
    summary = toy_lab.last_json(out)
    assert code == 0, err
    assert summary["finished"] == 4
    reports = {Path(path).parent.name for path in summary["report"]}
    assert reports == {"workload=one", "workload=two"}


def test_a_sweep_works_in_a_folder_reached_through_a_link(lab: Path) -> None:
    (lab / "elsewhere").mkdir()
    (lab / "runs").symlink_to(lab / "elsewhere")
    code, out, err = toy_lab.run(lab, "sweep=grid", "fail=lru")
    summary = toy_lab.last_json(out)
    assert (code, summary["finished"], summary["failed"]) == (1, 4, 2), err


def test_a_second_sweep_in_the_same_folder_is_refused_while_the_first_runs(lab: Path) -> None:
    first = toy_lab.start(lab, "sweep=grid", "sleep=0.5")
    deadline = time.monotonic() + 60
    while not toy_lab.calls(lab) and time.monotonic() < deadline:
        time.sleep(0.02)
    code, _, err = toy_lab.run(lab, "sweep=grid", "sleep=0.5")
    assert code == 2
    assert "another process is running this sweep" in err
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 0
    assert toy_lab.last_json(out)["finished"] == 6


def test_redo_runs_every_job_again_in_its_own_folder(lab: Path) -> None:
    folder = toy_lab.last_json(toy_lab.run(lab, "sweep=grid")[1])["folder"]
    again = toy_lab.last_json(toy_lab.run(lab, "sweep=grid", "record.redo=true")[1])
    assert (again["folder"], again["finished"]) == (folder, 6)
    assert toy_lab.last_json(toy_lab.run(lab, "sweep=grid")[1])["skipped"] == 6


def test_what_the_command_line_fixes_gives_the_sweep_a_folder_of_its_own(lab: Path) -> None:
    out = toy_lab.run(lab, "sweep=grid", "seed=7", "workload=two", "evictor=lru", "block_size=16,32")[1]
    folder = Path(toy_lab.last_json(out)["folder"])
    assert folder == lab / "runs" / "grid" / "two,seed=7,evictor=lru"
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"block_size=16", "block_size=32"}


@pytest.mark.parametrize(
    ("overrides", "folder"),
    [
        ("block_size=16,num_blocks='5%'", "block_size=16,num_blocks=5%"),
        ("evictor=lru,workload=a,workload.limit=5", "workload=a,workload.limit=5/evictor=lru"),
        ("workload=a", "workload=a/default"),
        ("path=/some/a b/../c", "path=-some-a-b-..-c"),
        ("", "default"),
    ],
)
def test_a_job_folder_is_readable_and_safe(overrides: str, folder: str) -> None:
    assert job_folder(overrides) == folder


def test_long_names_are_cut_and_still_differ() -> None:
    names = {safe_name("x" * 300 + end) for end in "ab"}
    assert len(names) == 2
    assert {len(name) for name in names} == {120}
