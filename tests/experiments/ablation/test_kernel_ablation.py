"""The command from its yaml to its report, and every yaml of its groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.utils import instantiate
from support.conf import composed, options

from experiments.ablation.baseline.base import Baseline
from experiments.ablation.ceilings import Ceilings
from experiments.ablation.point import Point
from experiments.ablation.session import bench
from experiments.ablation.session.bench import rehearsal_bench, table_for
from experiments.ablation.timing import HostTimer
from experiments.ablation.variant.base import Variant
from experiments.ablation.variant.varlen import Varlen
from experiments.errors import UserError
from experiments.kernel_ablation import checked, decide, time_point
from kernels.tuning import load

ROOT = Path(__file__).parents[3]


def ablation(tmp_path: Path, *overrides: str) -> tuple[int, str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "PAGELAB_", "TRITON_"))}
    places = [f"hydra.run.dir={tmp_path}/run", f"hydra.sweep.dir={tmp_path}/sweep", f"aot_cache={tmp_path}"]
    run = subprocess.run(
        [sys.executable, "-m", "experiments.kernel_ablation", *places, *overrides],
        cwd=ROOT, env=clean, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return run.returncode, run.stdout, run.stderr


def test_a_sweep_without_a_gpu_ends_with_a_table_a_figure_and_an_offline_run(tmp_path):
    code, out, err = ablation(tmp_path, "sweep=block_size", "block_size=16,64", "mode=compile", "batch=4")
    assert code == 0, err
    summary = json.loads(out.splitlines()[-1])
    assert (summary["finished"], summary["failed"]) == (2, 0)
    assert {Path(path).name for path in summary["report"]} >= {"compiled_by_block_size.png", "report.parquet"}
    assert "H200 (sm_90), not run: what the compiler made" in err
    metrics = json.loads((tmp_path / "sweep" / "block_size=16" / "metrics.json").read_text())
    assert metrics["check_passed"] is True
    assert metrics["check_dtype"] == "fp16", "bf16 is not checked where it is multiplied wrongly"
    assert (metrics["op"], metrics["variant"], metrics["spills"]) == ("decode", "split_kv", 0)
    assert metrics["k_load_bytes"] == metrics["v_load_bytes"] == 16
    assert not [key for key in metrics if key.endswith("p50_us")], "nothing was timed, so no time is there"
    assert len(list(tmp_path.glob("sweep/*/wandb/offline-run-*"))) == 2
    assert list(tmp_path.glob("sweep/wandb/offline-run-*")), "the report is a run of its own"


def test_a_mistake_ends_with_one_sentence_and_status_2(tmp_path):
    code, out, err = ablation(tmp_path, "tracker=none", "mode=compile", "block_size=0")
    assert code == 2
    assert "error: block_size must be a positive whole number, got 0" in err
    assert "Traceback" not in err
    assert out == ""


class Wrong(Varlen):
    def reference(self, inputs):
        return [2 * tensor for tensor in super().reference(inputs)]


def test_no_number_of_a_wrong_variant_is_shown():
    with pytest.raises(UserError, match=r"Wrong is wrong at this point, so no number of it is shown: relative error"):
        checked(Wrong(), Point(num_kv_heads=1), load("sm_90"), torch.device("cpu"))


def test_a_point_that_is_timed_has_its_baselines_ceilings_and_check_in_one_row():
    overrides = ("batch=2", "context=96", "num_kv_heads=1", "dtype=fp16", "num_splits=2")
    cfg = composed(*overrides, config_name="kernel_ablation")
    point = Point(**{name: cfg[name] for name in Point().row()})
    cfg.baselines = [node for node in cfg.baselines if "flex" not in node._target_]
    row = time_point(cfg, instantiate(cfg.variant), point, load("interpreter"), rehearsal_bench())
    assert row["check_passed"]
    assert 0 < row["p20_us"] <= row["p50_us"] <= row["p80_us"]
    assert row["sdpa_us"] > 0
    assert row["copy_gb_per_s"] > 0
    assert row["conch_note"] == row["flashinfer_note"] == "not installed"
    assert (row["splits"], row["useful_bytes"]) == (2, instantiate(cfg.variant).work(point).bytes)


@pytest.mark.parametrize(
    ("capability", "hip", "table"), [((9, 0), None, "sm_90"), ((12, 1), None, "sm_90"), ((9, 4), "6.4", "gfx942")]
)
def test_a_gpu_has_the_table_of_its_architecture_or_the_nearest(capability, hip, table, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    named = SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: named)
    assert table_for(torch.device("cuda")).arch == table


def test_a_gpu_bench_takes_its_numbers_from_the_device(monkeypatch):
    properties = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132, L2_cache_size=60 << 20)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    ceilings = Ceilings(4.3e12, 8e14, "fp16")
    monkeypatch.setattr(bench, "cuda_timer", lambda device: HostTimer())
    monkeypatch.setattr(bench, "measure_ceilings", lambda device, timer, dtype: replace(ceilings, dtype=dtype))
    made = bench.gpu_bench(dtype="fp16")
    assert (made.device_name, made.processors, made.tuning.arch) == ("NVIDIA H200", 132, "sm_90")
    assert made.ceilings == ceilings
    assert made.device == torch.device("cuda", 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_mode_that_is_none_or_needs_a_gpu_is_refused():
    with pytest.raises(UserError, match="mode=fast is none of auto, time, compile"):
        decide("fast")
    with pytest.raises(UserError, match="mode=time needs a GPU"):
        decide("time")


@pytest.mark.parametrize("option", options("op"))
def test_every_op_composes_into_a_point_its_variant_can_do(option):
    cfg = composed(f"op={option}", config_name="kernel_ablation")
    variant, tuning = instantiate(cfg.variant), instantiate(cfg.kernel)
    assert isinstance(variant, Variant)
    point = variant.resolve(Point(**{name: cfg[name] for name in Point().row()}), tuning, 132)
    assert variant.launches(point, tuning)


def test_a_variant_on_the_command_line_wins_over_that_of_the_op():
    cfg = composed("op=decode", "variant=varlen", "batch=3", config_name="kernel_ablation")
    assert cfg.variant._target_.endswith("Varlen")
    assert (cfg.batch, cfg.query_len) == (3, 1)


def test_the_baselines_of_the_yaml_are_baselines_with_names_of_their_own():
    built = [instantiate(node) for node in composed(config_name="kernel_ablation").baselines]
    assert all(isinstance(baseline, Baseline) for baseline in built)
    assert len({(baseline.op, baseline.name) for baseline in built}) == len(built)


@pytest.mark.parametrize("option", ["block_size", "splits"])
def test_the_sweeps_compose(option):
    cfg = composed(f"sweep={option}", config_name="kernel_ablation")
    assert cfg.record.plots is False
    assert load(cfg.kernel.arch).arch == cfg.kernel.arch
