"""What the compiler makes of a point, without a GPU: `kernels.aot` in a process of its own, remembered on disk.

Checking a variant on a CPU needs Triton's interpreter and compiling it needs the compiler; a process can have only one
of them. So the study runs in a child: `python -m experiments.ablation.compiled`, a pickled request in, a JSON row out.

Many points compile to the same code: a batch of 8 or 64 is the same kernel. A report is therefore stored under a hash
of all that the compiler sees: the sources of `kernels`, the specialised arguments, target, options, Triton's version.

Knows nothing of whether the code is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.ablation.point import Point
from experiments.ablation.variant.base import Variant
from experiments.atomic import write_whole
from experiments.errors import UserError
from kernels.aot import specialise, study
from kernels.launch import Launch
from kernels.targets import Target, find_target
from kernels.tuning import Tuning

ROOT = Path(__file__).parents[2]
PEAK = {"sm_80": (312e12, 19.5e12), "sm_90": (989e12, 67e12), "sm_100": (2250e12, 80e12), "gfx942": (1307e12, 163e12)}
"""Data sheet FLOP/s of dense fp16/bf16 matrix products, and of plain fp32: A100, H200, B200, MI300X."""


class Study:
    """A compilation under way: begun in a child when made, unless its report is stored already."""

    def __init__(self, variant: Variant, point: Point, tuning: Tuning, target: Target, cache_dir: str | None) -> None:
        """`point` is resolved. `cache_dir`: default `$XDG_CACHE_HOME/pagelab`, or `~/.cache/pagelab`."""
        launches = variant.launches(point, tuning)
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(cache_dir or Path(home) / "pagelab").expanduser() / "aot"
        self._launch, self._target = launches[0], target
        self._file = folder / f"{key_of(launches[0], target)}.json"
        self._row = _stored(self._file)
        self._child = None if self._row else _start(variant, point, tuning, target)

    def row(self) -> dict[str, Any]:
        """The report as columns. Raises UserError where the kernel does not compile for the target."""
        if self._child is not None:
            out, err = self._child.communicate()
            if self._child.returncode:
                raise UserError(err.decode().strip().splitlines()[-1] if err.strip() else "compiling failed silently")
            self._row, self._child = json.loads(out), None
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._file, json.dumps(self._row).encode())
        assert self._row is not None
        return {**self._row, **_grid(self._launch, self._row, self._target)}


def _grid(launch: Launch, row: dict[str, Any], target: Target) -> dict[str, Any]:
    """How the launch fills the GPU; one launch of many points that share their code."""
    programs = 1
    for size in launch.grid:
        programs *= size
    at_once = row["programs_per_processor"] * target.processors
    return {
        "tile_q": launch.args.get("TILE_Q"),
        "tile_kv": launch.args.get("TILE_KV"),
        "num_stages": launch.num_stages,
        "programs": programs,
        "waves": programs / at_once if at_once else None,
    }


def key_of(launch: Launch, target: Target) -> str:
    """Hash of all the compiler sees. Names in capitals are compile-time constants (`kernels/README.md`)."""
    arguments = {
        name: repr(value) if name.isupper() or value is None else specialise(value)
        for name, value in sorted(launch.args.items())
    }
    seen = [
        launch.kernel.__name__, arguments, launch.num_warps, launch.num_stages, launch.fp_fusion,
        target.name, asdict(target), version("triton"), _sources(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(seen, default=str).encode()).hexdigest()


def model(row: dict[str, Any], point: Point, target: Target) -> dict[str, Any]:
    """What a data sheet allows at most: the larger of bytes / bandwidth and flops / peak. A model, never a measurement.

    `row` holds `useful_bytes` and `useful_flops`.
    """
    matrix, plain = PEAK[target.name]
    by_bytes = row["useful_bytes"] / target.bandwidth
    by_flops = row["useful_flops"] / (plain if point.dtype == "fp32" else matrix)
    return {
        "model_floor_us": max(by_bytes, by_flops) * 1e6,
        "model_limit": "bytes" if by_bytes >= by_flops else "flops",
    }


def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "kernels").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stored(file: Path) -> dict[str, Any] | None:
    try:
        row = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return row if isinstance(row, dict) else None


def _start(variant: Variant, point: Point, tuning: Tuning, target: Target) -> subprocess.Popen[bytes]:
    clean = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    child = subprocess.Popen(
        [sys.executable, "-m", "experiments.ablation.compiled"],
        cwd=ROOT, env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None
    child.stdin.write(pickle.dumps((variant, point, tuning, target.name)))
    child.stdin.close()
    child.stdin = None  # so that `communicate` leaves it alone
    return child


def main() -> int:
    """The child's side: 0, or 2 with one sentence as the last line of standard error."""
    variant, point, tuning, name = pickle.loads(sys.stdin.buffer.read())
    try:
        report = asdict(study("", variant.launches(point, tuning)[0], find_target(name)))
    except (RuntimeError, ValueError) as error:
        print(f"\n{' '.join(str(error).split())}", file=sys.stderr)
        return 2
    renamed = {"programs": "programs_per_processor"}
    dropped = {"variant", "target", "static_shared", "dynamic_shared"}
    row = {renamed.get(key, key): value for key, value in report.items() if key not in dropped}
    row["shared_bytes"] = report["static_shared"] + report["dynamic_shared"]
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
