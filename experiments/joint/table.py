"""The runs of a joint sweep as one table, a row each: which policies, under which setting, from which seed.

A *policy* is what one would choose in production (evictor, order, victim, ...), a *setting* what one compares policies
under (block size, pool, load, ...). Of both only what differs between the runs is an axis. Runs from the same seed met
the same requests, so they are compared in pairs.

Knows nothing of statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.errors import UserError
from experiments.joint.measures import MEASURES
from experiments.record import StoredRecord
from experiments.reporting.differences import config_differences, differing_groups, untold, value_of
from experiments.reporting.names import run_name

if TYPE_CHECKING:
    from pandas import DataFrame

USUAL = {
    "evictor": "lru",
    "order": "fcfs",
    "victim": "last",
    "preemption": "recompute",
    "scheduler": "continuous",
    "allocator": "radix",
    "hasher": "builtin",
}
"""Policy axes, and the choice on each that the others are measured against; of other groups the first by name."""
SETTINGS = ("model", "gpu", "rate", "pool", "block_size")
FROM_CONFIG = ("rate",)
NO_AXES = ("workload", "ledger")
"""Groups that are neither: other workloads are refused, and who watches a run does not change it."""


@dataclass(frozen=True, slots=True)
class Axes:
    """What was swept."""

    policies: list[str]
    settings: list[str]
    baseline: dict[str, str]
    """Policy axis → the choice that is the baseline."""

    @property
    def points(self) -> list[str]:
        """Columns that tell two points apart; only seeds tell runs of one point apart."""
        return [*self.settings, *self.policies]


def table(folder: Path, records: Sequence[StoredRecord]) -> tuple[DataFrame, Axes]:
    """One row per run, with every policy and setting, and the axes among them.

    Raises UserError where records are no timed simulations, met different requests from one seed, or cannot be told
    apart.
    """
    from pandas import DataFrame

    _refuse_others(folder, records)
    frame = DataFrame([record.metrics | {key: record.config.get(key) for key in FROM_CONFIG} for record in records])
    groups = differing_groups(records, without=(*USUAL, *SETTINGS, *NO_AXES))
    axes = _axes(frame, [*USUAL, *groups], SETTINGS)
    _refuse_other_requests(folder, frame, records)
    more = _other_settings(frame, axes, records)
    for key in more:
        frame[key] = [value_of(record, key) for record in records]
    axes = _axes(frame, [*USUAL, *groups], [*more, *SETTINGS])
    _refuse_twins(folder, frame, axes, records)
    return frame.sort_values([*axes.points, "seed"], ignore_index=True), axes


def _axes(frame: DataFrame, policies: Sequence[str], settings: Sequence[str]) -> Axes:
    def differ(names: Sequence[str]) -> list[str]:
        return [name for name in names if name in frame and frame[name].nunique(dropna=False) > 1]

    policies = differ(policies) or ["evictor"]
    baseline = {}
    for name in policies:
        choices = sorted(frame[name].unique())
        baseline[name] = USUAL[name] if USUAL.get(name) in choices else choices[0]
    return Axes(policies, differ(settings) or ["block_size"], baseline)


def _other_settings(frame: DataFrame, axes: Axes, records: Sequence[StoredRecord]) -> list[str]:
    """Config keys that every run has and that alone tell some of them apart: `scheduler.max_num_seqs`, `slo.ttft`."""
    points = list(frame[[*axes.points, "seed"]].itertuples(index=False, name=None))
    keys = [key for key in untold(records, points) if not key.endswith("_target_")]
    return [key for key in keys if all(value_of(record, key) is not None for record in records)]


def _refuse_others(folder: Path, records: Sequence[StoredRecord]) -> None:
    for record in records:
        missing = [m.key for m in MEASURES if record.metrics.get(m.key) is None]
        if missing:
            raise UserError(
                f"{run_name(record, folder)} has no {missing[0]}: it is no timed simulation "
                "(experiments.simulate). Report on a folder with nothing else."
            )


def _refuse_other_requests(folder: Path, frame: DataFrame, records: Sequence[StoredRecord]) -> None:
    met: dict[object, StoredRecord] = {}
    for record, seed, fingerprint in zip(records, frame.seed, frame.workload_fingerprint, strict=True):
        first = met.setdefault(seed, record)
        if first.metrics["workload_fingerprint"] != fingerprint:
            raise UserError(
                f"the runs met different requests from seed {seed}, and such do not compare: "
                f"{run_name(first, folder)} and {run_name(record, folder)}. "
                "Report on a folder with one workload."
            )


def _refuse_twins(folder: Path, frame: DataFrame, axes: Axes, records: Sequence[StoredRecord]) -> None:
    met: dict[tuple[object, ...], StoredRecord] = {}
    for record, point in zip(records, frame[[*axes.points, "seed"]].itertuples(index=False, name=None), strict=True):
        twin = met.setdefault(point, record)
        if twin is not record:
            differing = ", ".join(config_differences([twin, record])[0]) or "nothing"
            raise UserError(
                f"{run_name(twin, folder)} and {run_name(record, folder)} are one point of the sweep "
                f"twice: what differs is {differing}, which not every run of the sweep has. Give such a variant a "
                "yaml and a name of its own, or report on a folder with one of the two."
            )
