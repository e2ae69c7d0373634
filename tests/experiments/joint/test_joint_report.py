"""A joint sweep becomes a page, tables and figures that say what is known and what is not."""

from __future__ import annotations

import re
import shutil

import pandas
import pytest
from hydra.utils import get_method
from omegaconf import OmegaConf
from support import toy_lab
from support.conf import CONF, composed

from experiments.errors import UserError
from experiments.joint.measures import MEASURES
from experiments.joint.table import USUAL
from experiments.report import write_report


def test_the_report_is_a_page_two_tables_and_two_figures(grid):
    report = write_report(grid)
    names = {path.name for path in report.files}
    images = {f"{name}.{suffix}" for name in ("combinations", "choices") for suffix in ("png", "svg")}
    assert names == images | {"report.html", "report.md", "report.parquet", "choices.parquet"}
    frame = pandas.read_parquet(grid / "report.parquet")
    assert len(frame) == 12
    text, page = (grid / "report.md").read_text(), (grid / "report.html").read_text()
    for told in (text, page):
        assert re.search(r"hazard · fcfs.*\+0\.\d+ ± 0\.\d+", told.replace("\n", " "))
        assert "the baseline is lru · fcfs, at the same setting and from the same seed" in told
        assert "hazard for lru" in told
    assert "may be so by chance alone" in text
    assert not re.search(r"(src|href)=\"(?!data:)", page), "the page stands alone"
    best = report.summary()["best"]["goodput"]["blocks of 16 tokens"]
    assert best["policy"].startswith("hazard")
    assert best["verdict"] == "better"
    before = {path.name: path.read_bytes() for path in report.files}
    assert {path.name: path.read_bytes() for path in write_report(grid).files} == before


def test_the_terminal_shows_the_baseline_even_where_it_is_not_among_the_best(grid, capsys, monkeypatch):
    monkeypatch.setattr("experiments.joint.results.MOST_SHOWN", 1)
    write_report(grid).show()
    told = capsys.readouterr().err
    assert told.count("(baseline)") == 2 * 3
    assert "≈" in told or "=" in told


def test_one_seed_is_told_and_has_no_interval(put, tmp_path):
    put("lru", 0)
    put("hazard", 0)
    report = write_report(tmp_path)
    assert "one seed: differences have no interval" in " ".join(report.notes)
    assert "±" not in (tmp_path / "report.md").read_text()


def test_fixed_requests_are_told_because_intervals_then_say_nothing_of_other_traffic(put, tmp_path):
    for seed in range(3):
        for evictor in ("lru", "random"):
            put(evictor, seed, workload_fingerprint="a trace", goodput=5.0 if evictor == "lru" else 4.0 + seed / 10)
        put("sieve", seed, workload_fingerprint="a trace", goodput=5.0, ttft_p95=9.0)
    shutil.rmtree(tmp_path / "evictor=sieve,seed=2,workload_fingerprint=a trace,goodput=5.0,ttft_p95=9.0")
    notes = " ".join(write_report(tmp_path).notes)
    assert "the luck of the policy, not how it would do on other traffic" in notes
    assert "runs are missing from the grid" in notes


def test_a_run_that_meets_no_limit_is_told_and_the_best_then_goes_by_the_next_measure(put, tmp_path):
    for seed in range(2):
        for evictor, ttft in (("lru", 50.0), ("hazard", 40.0), ("sieve", 60.0)):
            put(evictor, seed, goodput=0.0, ttft_p95=ttft, workload_fingerprint="a trace")
    report = write_report(tmp_path)
    assert "no request of any run met both limits" in " ".join(report.notes)
    assert "by chance" not in " ".join(report.notes), "nothing here is random"
    assert report.summary()["best"]["goodput"]["blocks of 16 tokens"]["policy"] == "hazard"
    assert "(−10.0)" in (tmp_path / "report.md").read_text(), "no interval where every seed says the same"


def test_any_setting_that_all_runs_have_is_an_axis_and_none_is_averaged_over(put, tmp_path):
    for seed in range(2):
        for evictor in ("lru", "hazard"):
            for budget in (512, 2048):
                config = {"scheduler": {"max_num_batched_tokens": budget, "seed": seed}}
                put(evictor, seed, config=config, budget=budget, preemption="swap" if budget == 512 else "recompute")
    report = write_report(tmp_path)
    assert report.axes.points == ["block_size", "evictor", "preemption"]
    shutil.rmtree(tmp_path)
    for seed in range(2):
        for evictor in ("lru", "hazard"):
            for budget in (512, 2048):
                put(evictor, seed, config={"scheduler": {"max_num_batched_tokens": budget}}, budget=budget)
    report = write_report(tmp_path)
    assert report.axes.points == ["scheduler.max_num_batched_tokens", "evictor"]
    assert len(report.frame) == 4
    assert "scheduler.max_num_batched_tokens 2048" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("change", "half", "told"),
    [
        (-0.00447, 0.149, "−0.00 ± 0.15"),
        (1.9612, 0.527, "+1.96 ± 0.53"),
        (-35.53, 12.3, "−36 ± 12"),
        (2.0, None, "+2.00"),
    ],
)
def test_a_difference_has_the_digits_that_its_interval_supports(change, half, told):
    assert MEASURES[0].difference(change, half) == told


def test_without_the_usual_choice_the_first_one_is_the_baseline(put, tmp_path):
    for seed in range(2):
        put("sieve", seed)
        put("hazard", seed)
    assert "the baseline is hazard" in " ".join(write_report(tmp_path).notes)


def test_what_does_not_compare_is_refused(put, tmp_path):
    put("lru", 0)
    put("hazard", 0, workload_fingerprint="other requests")
    with pytest.raises(UserError, match="met different requests from seed 0"):
        write_report(tmp_path)
    shutil.rmtree(tmp_path / "evictor=hazard,seed=0,workload_fingerprint=other requests")
    put("lru", 0, config={"order": {"window": 8}}, note=1)
    with pytest.raises(UserError, match=r"one point of the sweep twice: what differs is order\.window"):
        write_report(tmp_path)


def test_records_of_another_kind_are_refused(put, tmp_path):
    put("lru", 0)
    put("hazard", 0, goodput=None)
    metrics = tmp_path / "evictor=hazard,seed=0,goodput=None"
    assert metrics.exists()
    with pytest.raises(UserError, match="has no goodput: it is no timed simulation"):
        write_report(tmp_path)


def test_the_sweep_names_its_report_and_its_seed_decides_the_requests_too():
    cfg = composed("sweep=joint", "seed=7", config_name="simulate")
    assert get_method(cfg.report)
    assert cfg.workload.seed == 7
    defaults = [entry for entry in OmegaConf.load(CONF / "simulate.yaml").defaults if not isinstance(entry, str)]
    usual = {group: choice for entry in defaults for group, choice in entry.items()}
    assert {axis: usual[axis] for axis in USUAL} == USUAL, "the baseline is what runs where nothing is chosen"


def test_a_small_joint_sweep_runs_from_the_command_line_to_the_report(tmp_path):
    small = ("workload=shared_prefix", "workload.num_requests=60", "workload.prefix_tokens=96", "tracker=none")
    grid = ("evictor=lru,random", "victim=last", "block_size=16", "seed=0,1")
    code, out, err = toy_lab.run_module(
        "experiments.simulate", "sweep=joint", *small, *grid, f"hydra.sweep.dir={tmp_path}"
    )
    summary = toy_lab.last_json(out)
    assert code == 0, err
    assert (summary["jobs"], summary["finished"]) == (8, 8)
    assert {"report.html", "combinations.png", "choices.png"} <= {path.name for path in tmp_path.iterdir()}
    assert "what each choice alone is worth" in err
