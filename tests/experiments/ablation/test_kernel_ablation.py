"""The command from its yaml to its report, and every yaml of its groups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from support.conf import composed, options

from experiments.ablation.baseline.base import Baseline
from experiments.ablation.point import Point
from experiments.ablation.variant.base import Variant
from experiments.ablation.variant.varlen import Varlen
from experiments.errors import UserError
from experiments.kernel_ablation import checked, decide
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
