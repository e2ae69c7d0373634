"""Records from one folder or from many machines, and the sentences that refuse what does not compare.

Knows nothing of tables or pages.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from experiments.errors import UserError
from experiments.record import CONFIG, BrokenRecord, StoredRecord, config_text, read_record
from experiments.reporting.names import run_name, workload_of

LISTED = 5
"""Broken records named one by one."""
ALWAYS_DIFFERENT = ("seconds", "requests_per_second", "blocks_per_second")


def read_records(folder: Path) -> tuple[list[StoredRecord], list[str]]:
    """Whole records below a folder, in order of their paths, and a note on those that are not."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder. Give the folder of a sweep, as its last line of output names it.")
    records, broken = [], []
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "wandb" and not name.startswith("."))
        if CONFIG in files:
            try:
                records.append(read_record(Path(path)))
            except BrokenRecord as error:
                broken.append(f"{os.path.relpath(path, folder)} ({error})")
    if not records:
        why = f" {len(broken)} runs there are unfinished or broken: {broken[0]}, ..." if broken else ""
        raise UserError(f"{folder} holds no record of a finished run.{why} Run a sweep first, or name another folder.")
    notes = []
    if broken:
        more = f" and {len(broken) - LISTED} more" if len(broken) > LISTED else ""
        notes.append(f"left out, unfinished or broken: {'; '.join(broken[:LISTED])}{more}")
    return sorted(records, key=lambda record: record.folder), notes


def join(folders: Sequence[Path]) -> tuple[list[StoredRecord], list[str]]:
    """Records of all folders; a run that lies in two of them (the same config, the same results) counts once."""
    records: list[StoredRecord] = []
    notes: list[str] = []
    seen: dict[tuple[str, str], StoredRecord] = {}
    copies: list[str] = []
    for folder in folders:
        found, more = read_records(folder)
        notes += more if len(folders) == 1 else [f"{folder}: {note}" for note in more]
        for record in found:
            results = {key: value for key, value in record.metrics.items() if key not in ALWAYS_DIFFERENT}
            key = config_text(record.config), config_text(results)
            if len(folders) > 1 and key in seen and seen[key].folder != record.folder:
                copies.append(record.folder.name)
                continue
            seen[key] = record
            records.append(record)
    if copies:
        notes.append(f"{len(copies)} runs lie in more than one of the folders with the same results and count once")
    return records, notes


def refuse_mixtures(folders: Sequence[Path], records: Sequence[StoredRecord]) -> None:
    """Raises UserError unless all records are over the very same requests, and their pools can be set side by side."""
    seen: dict[str, StoredRecord] = {}
    for record in records:
        seen.setdefault(str(record.metrics.get("workload_fingerprint")), record)
    if len(seen) > 1:
        first, second = list(seen.values())[:2]
        raise UserError(
            f"{_told(folders)} runs over {len(seen)} different workloads, and hit rates over different requests do not "
            f"compare: {run_name(first, *folders)} is over {workload_of(first)}, "
            f"{run_name(second, *folders)} over {workload_of(second)}. Report on a folder with one workload."
        )
    _refuse_other_pools(folders, records)


def _refuse_other_pools(folders: Sequence[Path], records: Sequence[StoredRecord]) -> None:
    asked: dict[tuple[object, object], StoredRecord] = {}
    policies: dict[tuple[object, object], set[object]] = defaultdict(set)
    for record in records:
        metrics = record.metrics
        other = asked.setdefault((metrics.get("block_size"), metrics.get("pool")), record)
        if other.metrics.get("num_blocks") != metrics.get("num_blocks"):
            raise UserError(
                f"{_told(folders)} runs whose pool of {metrics.get('pool')} is not the same: "
                f"{run_name(other, *folders)} has {other.metrics.get('num_blocks')} blocks, "
                f"{run_name(record, *folders)} {metrics.get('num_blocks')}, and "
                "hit rates of different pools do not compare. Make them anew with one version, or give num_blocks as a "
                "count."
            )
        policies[metrics.get("block_size"), metrics.get("num_blocks")].add(metrics.get("evictor"))
    if len(set().union(*policies.values())) > 1 and max(map(len, policies.values())) == 1:
        (one, first), (two, second) = list(policies.items())[:2]
        raise UserError(
            f"{_told(folders)} no two policies with the same pool: {first.pop()} ran with {one[1]} blocks of {one[0]} "
            f"tokens, {second.pop()} with {two[1]} of {two[0]}, and hit rates of different pools do not compare. Run "
            "each policy with each pool (a sweep does)."
        )


def _told(folders: Sequence[Path]) -> str:
    names = [str(folder) for folder in folders]
    return f"{names[0]} holds" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} together hold"
