"""How reports name a run: its folder, its workload, the commit that made it.

Knows nothing of what was measured.
"""

from __future__ import annotations

from pathlib import Path

from experiments.record import StoredRecord


def run_name(record: StoredRecord, folder: Path, *more: Path) -> Path:
    """A run as people find it: its folder, from where they asked for the report if that was one place and holds it."""
    alone = not more and record.folder.is_relative_to(folder)
    return record.folder.relative_to(folder) if alone else record.folder


def workload_of(record: StoredRecord) -> str:
    """The workload a run was over, and the beginning of its fingerprint."""
    return f"{record.metrics.get('workload')} ({str(record.metrics.get('workload_fingerprint'))[:12]})"


def commit_of(record: StoredRecord) -> str:
    """The commit a run was made by."""
    git = record.environment.get("git")
    return f"{git['commit'][:10]}{' with changes' if git['dirty'] else ''}" if git else "unknown"
