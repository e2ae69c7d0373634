"""Where a sweep and its jobs lie, so that the same command finds the same folders again.

    runs/<sweep>/<workload, or the experiment>[,<what the command line fixed>]/[workload=.../]<what the sweep varies>/

Knows nothing of what lies in the folders.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

LONGEST = 120
"""Characters of a folder's name; file systems stop at 255."""
PLACES = ("sweep", "workload", "data_dir", "tracker", "record.redo", "record.plots", "record.question")
"""Overrides that the name says already, or that only say where files lie."""


def safe_name(text: str) -> str:
    """Text as one folder's name: letters, digits and `=,.%_+-`; cut, with a hash of the rest, where it is too long."""
    name = re.sub(r"[^\w=,.%+-]+", "-", text.replace("'", "").replace('"', "")).strip("-.") or "default"
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def job_folder(dirname: str) -> str:
    """Hydra's `override_dirname` as a path. Jobs of different workloads lie apart, because they do not compare."""
    parts = dirname.split(",")
    workload = [part for part in parts if re.match(r"workload\b", part)]
    rest = [part for part in parts if part not in workload]
    groups = [workload, rest] if workload else [rest]
    return "/".join(safe_name(",".join(group)) for group in groups)


class SweepPlan:
    """What Hydra's basic sweeper will run, read from its config and the command line with Hydra's own parser."""

    def __init__(self, config: DictConfig, parser: OverridesParser) -> None:
        """`config`: the sweep's, with its `hydra` node."""
        hydra = config.hydra
        given = parser.parse_overrides(list(hydra.overrides.task))
        self._params: Mapping[str, Any] = hydra.sweeper.get("params") or {}
        swept = parser.parse_overrides([f"{key}={value}" for key, value in self._params.items()])
        self._final = {override.get_key_element(): override for override in [*swept, *given]}
        self._texts = list(hydra.overrides.task)
        self._choices = hydra.runtime.choices
        self._job = hydra.job.name or "all"
        self.name: str = self._choices.get("sweep") or "multirun"
        self.fixed: list[Override] = [override for override in given if not override.is_sweep_override()]

    @property
    def num_jobs(self) -> int:
        """Jobs of the whole grid."""
        return prod(_num_values(override) for override in self._final.values())

    @property
    def folder(self) -> str:
        """Below the folder of all runs: the sweep, the workload, and whatever else the command line fixed."""
        leaf = [self._choices.get("workload") or self._job]
        leaf += [override.input_line or "" for override in self.fixed if override.key_or_group not in PLACES]
        name = safe_name(",".join(leaf))
        if self._choices.get("sweep") is None:  # made up on the command line: told apart by a hash of it
            name += f"-{hashlib.sha256(repr(sorted(self._texts)).encode()).hexdigest()[:8]}"
        return f"{safe_name(self.name)}/{name}"

    @property
    def fixed_keys(self) -> Sequence[str]:
        """What no job needs in its name."""
        return sorted({override.key_or_group for override in self.fixed})


def _num_values(override: Override) -> int:
    return sum(1 for _ in override.sweep_string_iterator()) if override.is_sweep_override() else 1
