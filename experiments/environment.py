"""Where a number comes from: code, packages, machine.

Imports none of the packages it names, so that a job starts fast. Knows nothing of what was measured.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "triton", "numpy", "hydra-core", "wandb")
ROOMS = ("kernels", "cache", "model", "scheduler", "experiments")
NO_NUMBER = (
    "experiments/plots/",
    "experiments/tracker/",
    "experiments/report",
    "experiments/ablation/report.py",
    "experiments/html/",
    "experiments/show.py",
)
"""What only shows numbers: changing it makes no record stale."""
ROOT = Path(__file__).parents[1]


def environment() -> dict[str, Any]:
    """Commit (null outside git), hash of the sources, versions, CPU and GPU."""
    return {
        "git": git_state(ROOT),
        "source_sha256": source_fingerprint(ROOT),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu(),
        "gpu": _gpu(),
    }


def git_state(root: Path) -> dict[str, Any] | None:
    """Commit and whether tracked files differ from it; None where `root` is no checkout or there is no git."""
    try:
        if Path(_git(root, "rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return None
        return {
            "commit": _git(root, "rev-parse", "HEAD"),
            "dirty": bool(_git(root, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def source_fingerprint(root: Path) -> str:
    """SHA-256 over those of our Python files that a number can depend on, committed or not."""
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if not name.startswith(NO_NUMBER):
                digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _gpu() -> str | None:
    """What the NVIDIA driver says without starting CUDA; None where there is no such driver."""
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text().splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return None
