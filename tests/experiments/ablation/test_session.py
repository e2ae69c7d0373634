"""A session loses no line, judges its goals, skips with a reason, and needs neither Hydra nor W&B."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import OutOfResources

from experiments.ablation.ceilings import Ceilings
from experiments.ablation.point import Point
from experiments.ablation.session.__main__ import main
from experiments.ablation.session.bench import rehearsal_bench, rehearsed
from experiments.ablation.session.goals import judge_goals
from experiments.ablation.session.plan import Item, session_plan
from experiments.ablation.session.run import Bench, planner, run_points
from experiments.ablation.session.summary import report_sections
from experiments.ablation.timing import HostTimer
from experiments.ablation.variant.scatter import Scatter
from kernels.tuning import load

ROOT = Path(__file__).parents[3]
NOT_THERE = ("hydra", "omegaconf", "wandb", "msgspec", "xxhash")


def session(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """A session, worker included, that cannot import what a bare GPU machine lacks."""
    for name in NOT_THERE:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} is not there')\n")
    run = subprocess.run(
        [sys.executable, "-m", "experiments.ablation.session", *arguments], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return run.returncode, run.stdout, run.stderr


def test_a_rehearsal_runs_a_session_without_gpu_hydra_or_wandb(tmp_path):
    code, out, err = session(tmp_path, "--out", str(tmp_path / "s"), "--rehearse", "--only", "cascade")
    assert code == 0, err
    assert err.startswith("2 points in 1 sections, most wanted first; all of it within 450 s, 30 of them for tables")
    summary = json.loads(out.splitlines()[-1])
    assert (summary["measured"], summary["failed"], summary["goals"]) == (2, 0, [])
    lines = [json.loads(line) for line in (tmp_path / "s" / "series.jsonl").read_text().splitlines()]
    assert [line["section"] for line in lines] == ["environment", "ceilings", "cascade", "cascade"]
    assert all(line["check_passed"] and line["p50_us"] > 0 for line in lines[2:])
    assert all(Path(file).is_file() for file in summary["files"])
    assert "rehearsal" in (tmp_path / "s" / "cascade" / "report.md").read_text()
    assert "environment" in json.loads((tmp_path / "s" / "summary.json").read_text())


def test_an_earlier_session_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "series.jsonl").write_text("{}")
    assert main(["--out", str(tmp_path), "--rehearse"]) == 2
    assert "holds an earlier session; give --out another folder." in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_a_session_says_what_to_do(tmp_path, capsys):
    assert main(["--out", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert err.strip() == "error: torch sees no GPU; --rehearse runs a small session without one."


TINY = Point(batch=2, query_len=5, context=40, num_kv_heads=1, head_dim=16, dtype="fp32")


def bench() -> Bench:
    timer = HostTimer(seconds=0.0, least=1)
    return Bench(torch.device("cpu"), "cpu", 1, load("interpreter"), timer, Ceilings(1e9, 1e9, "fp32"))


def measured(*variants) -> list[dict]:
    rows: list[dict] = []
    assert run_points([("w", Item(variant, TINY)) for variant in variants], bench(), rows.append)
    return rows


class Raises(Scatter):
    def bind(self, inputs, point, tuning):
        raise RuntimeError("out of\nshared memory")


class Wrong(Scatter):
    def results(self, inputs, returned):
        return [2 * tensor for tensor in inputs.written()]


class TooLarge(Scatter):
    def bind(self, inputs, point, tuning):
        raise OutOfResources(300_000, 232_448, "shared memory")


def test_a_point_that_raises_or_is_wrong_has_a_reason_and_no_time_and_the_next_one_is_measured():
    rows = measured(Raises(), Wrong(), TooLarge(), Scatter())
    assert rows[0]["failed"] == "RuntimeError: out of shared memory"
    assert rows[1]["failed"].startswith("wrong, so not timed: relative error 1")
    assert rows[2]["skipped"].startswith("does not fit this GPU: out of resource: shared memory, Required: 300000")
    assert not any("p50_us" in row for row in rows[:3])
    assert rows[3]["p50_us"] > 0


def test_after_a_lost_device_nothing_more_is_tried_in_this_process(monkeypatch):
    monkeypatch.setattr(Bench, "lost", lambda self: True)
    rows: list[dict] = []
    assert not run_points(
        [("w", Item(variant, TINY)) for variant in (Scatter(), Raises(), Scatter())], bench(), rows.append
    )
    assert ["failed" in row for row in rows] == [False, True]


def test_each_kind_of_call_is_checked_once():
    stand = bench()
    items = [Item(Scatter(), replace(TINY, batch=batch)) for batch in (3, 4, 5)] + [Item(Scatter(), TINY)]
    run_points([("w", item) for item in items], stand, lambda row: None)
    assert len(stand.checked) == 2, "batches of 3, 4 and 5 have the same small sibling"


def test_the_plan_holds_what_the_goals_need_and_a_rehearsal_a_little_of_all_of_it():
    plan = session_plan()
    assert [section.name for section in plan][:5] == ["decode", "overhead", "write", "prefill", "cascade"]
    assert {item.point.block_size for s in plan if s.name == "block_size" for item in s.items} >= {1, 8, 16, 24, 256}
    assert sum(len(section.items) for section in plan) > 150
    short = rehearsed(plan)
    assert [section.name for section in short] == [section.name for section in plan]
    assert max(len(section.items) for section in short) == 2
    assert rehearsal_bench().adjust(Point(batch=64)).batch <= 3


def row(section: str, variant: str, p50: float, **fields) -> dict:
    return {"section": section, "variant": variant, "p50_us": p50, **Point().row(), "share_of_ceiling": 0.5, **fields}


def test_goals_are_judged_on_the_worst_case():
    rows = [
        row("decode", "SplitKv", 100, block_size=16, context=4096, share_of_ceiling=0.95),
        row("decode", "SplitKv", 210, block_size=16, context=8192, share_of_ceiling=0.91),
        row("decode", "SplitKv", 100, block_size=128, context=4096),
        row("decode", "SplitKv", 200, block_size=128, context=8192),
        row("decode", "SplitKv", 100, block_size=8, context=4096, share_of_ceiling=0.8),
        row("write", "Scatter", 10, share_of_ceiling=0.9),
        row("prefill", "Varlen", 100, query_len=8192, context=8192, sdpa_us=90, sdpa_flash_us=80, sdpa_flash_host_us=1),
        row("overhead", "SplitKv", 10, host_us=30, sdpa_host_us=20, sdpa_us=10),
        row("cascade", "Cascade", 10, batch=64, context=8448, shared_prefix=8192, planner_pays=True),
        row("cascade", "SplitKv", 40, batch=64, context=8448, shared_prefix=8192),
        row("cascade", "SplitKv", 90, batch=64, context=8448, shared_prefix=0),
        row("cascade", "Cascade", 20, batch=4, context=768, shared_prefix=512, planner_pays=False),
        row("cascade", "SplitKv", 10, batch=4, context=768, shared_prefix=512),
    ]
    goals = judge_goals(rows)
    assert [goal.got for goal in goals] == [0.91, 0.8, 1.05, 0.9, 0.8, 4.0, 9.0, 1.0, 1.5, 1.0]
    assert [goal.met for goal in goals] == [True, False, False, True, True, False, True, True, False, True]
    rows[-2]["planner_pays"] = True
    assert judge_goals(rows)[7].got == 0.5, "a planner that chooses the slower way is found out"


def test_a_goal_without_rows_is_neither_met_nor_missed():
    assert {goal.met for goal in judge_goals([])} == {None}
    assert {goal.met for goal in judge_goals([{"section": "decode", "skipped": "no time left"}])} == {None}


def test_the_planner_reads_long_prefixes_of_many_once_and_leaves_short_ones_alone():
    assert planner(Point(context=8448, shared_prefix=8192)) == {"planner_pays": True}
    assert planner(Point(batch=2, context=768, shared_prefix=512)) == {"planner_pays": False}
    assert planner(Point()) == {}


def test_a_section_without_a_single_time_has_no_report_and_others_name_what_is_missing(tmp_path):
    some = [row | {"section": "some"} for row in measured(Scatter(), Raises())]
    none = [row | {"section": "none"} for row in measured(Raises())]
    report_sections(tmp_path, [*some, *none], {}, [])
    assert [path.name for path in tmp_path.iterdir()] == ["some"]
    assert "1 points left out: RuntimeError: out of shared memory" in (tmp_path / "some" / "report.md").read_text()
