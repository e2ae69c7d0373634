"""Real source files that every machine with Python has: those of its own standard library.

Knows nothing of prompts.
"""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.errors import UserError

PACKAGES = (
    *("asyncio", "collections", "concurrent/futures", "email", "html", "http", "importlib", "json", "logging"),
    *("multiprocessing", "unittest", "urllib", "wsgiref", "xml/etree", "xmlrpc", "zoneinfo"),
)
SKIPPED = ("site", "sitecustomize", "usercustomize", "sysconfig", "this", "pydoc")
"""Written or patched by whoever packages Python, or no code worth asking about."""

MIN_BYTES, MAX_BYTES = 8_000, 120_000


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path below the standard library, with forward slashes, and its lines without their ends."""

    name: str
    lines: tuple[str, ...]


def pick_sources(rng: np.random.Generator, count: int) -> list[Source]:
    """`count` files of middling size, in an order decided by `rng`; the same for the same Python.

    Raises UserError where this Python has fewer (some distributions leave the sources out).
    """
    root = Path(sysconfig.get_path("stdlib"))
    modules = [path for path in root.glob("*.py") if path.stem in sys.stdlib_module_names and path.stem not in SKIPPED]
    packaged = [path for package in PACKAGES for path in (root / package).glob("*.py")]
    names = sorted(
        path.relative_to(root).as_posix()
        for path in modules + packaged
        if MIN_BYTES <= path.stat().st_size <= MAX_BYTES and not path.stem.startswith("_")
    )
    if len(names) < count:
        raise UserError(
            f"stdlib_agent needs {count} source files of Python's standard library, but {root} has only {len(names)}: "
            "lower workload.num_files, or run a Python that ships its sources"
        )
    return [_read(root, names[index]) for index in rng.permutation(len(names))[:count]]


def _read(root: Path, name: str) -> Source:
    return Source(name, tuple((root / name).read_text(encoding="utf-8", errors="replace").splitlines()))
