"""What the configs of many runs have in common and where they differ, and on what machines the runs were made.

Knows nothing of results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from experiments.record import StoredRecord
from experiments.reporting.names import commit_of

SHOWN = 12
"""Different values of one key that are told."""


def config_differences(records: Sequence[StoredRecord]) -> tuple[dict[str, list[tuple[str, int]]], dict[str, str]]:
    """(key → its values and how many runs have each, where they differ; key → value, where all agree)."""
    flat = [dict(_flat(record.config)) for record in records]
    keys = list(dict.fromkeys(key for config in flat for key in config))
    differing: dict[str, list[tuple[str, int]]] = {}
    common: dict[str, str] = {}
    columns = {key: tuple(config.get(key, "(none)") for config in flat) for key in keys}
    first = {column: min((key for key in keys if columns[key] == column), key=len) for column in columns.values()}
    for key in keys:
        values = Counter(columns[key])
        if len(values) == 1:
            common[key] = next(iter(values))
        elif first[columns[key]] == key:  # interpolated keys say the same once more
            ordered = sorted(values.items(), key=lambda item: (len(item[0]), item[0]))
            rest = sum(count for _, count in ordered[SHOWN:])
            differing[key] = ordered[:SHOWN] + ([(f"and {len(ordered) - SHOWN} more", rest)] if rest else [])
    return differing, common


def differing_groups(records: Sequence[StoredRecord], without: Sequence[str] = ()) -> list[str]:
    """Config groups (order, victim, gpu, ...) of which the runs have several options: a metric names the option."""
    groups = dict.fromkeys(
        key
        for record in records
        for key, value in record.metrics.items()
        if isinstance(value, str) and isinstance(record.config.get(key), Mapping)
    )
    return [
        group
        for group in groups
        if group not in without and len({str(record.metrics.get(group)) for record in records}) > 1
    ]


def untold(records: Sequence[StoredRecord], told: Sequence[Hashable]) -> list[str]:
    """Config keys, seeds apart, that differ between runs of which `told` says the same: a mean would hide them."""
    together: dict[Hashable, list[StoredRecord]] = {}
    for record, name in zip(records, told, strict=True):
        together.setdefault(name, []).append(record)
    keys: dict[str, None] = {}
    for part in together.values():
        if len(part) > 1:
            keys |= dict.fromkeys(config_differences(part)[0])
    return [key for key in keys if key.rpartition(".")[2] != "seed"]


def value_of(record: StoredRecord, key: str) -> Any:
    """The value at a dotted key of a run's config; None where it has none."""
    value: Any = record.config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def machines(records: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    """One row per kind of machine and version that runs were made on, with how many."""
    kinds = Counter(
        (
            str(record.environment.get("cpu")),
            str(record.environment.get("gpu") or "none"),
            str(record.environment.get("python")),
            ", ".join(f"{name} {v}" for name, v in (record.environment.get("packages") or {}).items() if v),
            commit_of(record),
        )
        for record in records
    )
    names = ("cpu", "gpu", "python", "packages", "commit")
    return [{**dict(zip(names, kind, strict=True)), "runs": runs} for kind, runs in kinds.most_common()]


def _flat(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", str(value)))
    return found
