"""A made-up experiment that goes the whole way through cli, job, record, tracker and sweep, in a second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.conf import CONF

APP = """
import os, time
from pathlib import Path
import hydra
import numpy as np
from hydra.core.hydra_config import HydraConfig
from experiments.cli import cli
from experiments.errors import UserError
from experiments.job import Result, run_job

RATES = {"lru": 0.4, "belady": 0.6}

def job(cfg, log):
    evictor = HydraConfig.get().runtime.choices.evictor
    with open("calls", "a") as calls:
        calls.write(f"{evictor} {cfg.block_size}\\n")
    if cfg.fail == evictor:
        raise UserError("told to fail")
    if cfg.fail == "bug":
        raise KeyError("a bug")
    for request in range(5):
        log({"request": request, "hit_rate": request / 10, "age": None if request < 2 else 1.5})
    time.sleep(cfg.sleep)
    return Result({
        "requests": 5, "refused": 0, "prompt_tokens": 50, "token_hit_rate": RATES.get(evictor, 0.5), "pool": "5%",
        "num_blocks": 800 // cfg.block_size, "block_size": cfg.block_size, "pool_tokens": 800, "hit_rate": 0.4,
        "ceiling_token_hit_rate": 0.9, "workload_fingerprint": cfg.workload.fingerprint, "unbounded": float("inf"),
    }, draw=singular if cfg.fail == "plot" else None)

def singular(series, metrics):
    raise np.linalg.LinAlgError("Singular matrix")

@hydra.main(version_base="1.3", config_path="conf", config_name="toy")
def main(cfg):
    run_job(cfg, job)

if __name__ == "__main__":
    cli(main)
"""
PRIMARY = """
defaults:
  [lab, allocator: only, evictor: lru, hasher: only, workload: one, tracker: none, sweep: null, _self_]
block_size: 16
fail: null
sleep: 0
seed: 0
"""
SWEEP = """# @package _global_
defaults:
  - override /hydra/launcher: joblib
record: {plots: false}
hydra:
  mode: MULTIRUN
  sweeper: {params: {evictor: "lru,belady,fifo", block_size: "16,32"}}
"""


def make_toy_lab(folder: Path) -> None:
    """The app and its conf tree, with the real `lab`, `evictor` and `tracker` yamls."""
    (folder / "toy.py").write_text(APP)
    files = {
        "toy": PRIMARY,
        "sweep/grid": SWEEP,
        "workload/one": "fingerprint: aaaa",
        "workload/two": "fingerprint: bbbb",
        "allocator/only": "{}",
        "hasher/only": "{}",
    }
    for name, text in files.items():
        path = folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("lab.yaml", "evictor", "tracker", "hydra"):
        (folder / "conf" / name).symlink_to(CONF / name)


def _hear_interrupts() -> None:
    """What a shell runs in the background ignores them, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """The toy lab as a process group of its own."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "PAGELAB_"))}
    return subprocess.Popen(
        [sys.executable, "toy.py", *overrides],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_interrupts,
    )


def run(folder: Path, *overrides: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    process = start(folder, *overrides)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def run_module(module: str, *overrides: str) -> tuple[int, str, str]:
    """A real experiment as its own process: exit code, standard output, standard error."""
    command = [sys.executable, "-m", module, *overrides]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=CONF.parent)
    return done.returncode, done.stdout, done.stderr


def last_json(out: str) -> dict[str, Any]:
    """The object on the last line of standard output."""
    value = json.loads(out.splitlines()[-1], parse_constant=lambda word: 1 / 0)
    assert isinstance(value, dict)
    return value


def calls(folder: Path) -> list[str]:
    """Which jobs really ran, since the file was last removed."""
    path = folder / "calls"
    return sorted(path.read_text().splitlines()) if path.exists() else []
