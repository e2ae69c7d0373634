"""What a session leaves for people: a table and plots per section, the goals, one object with all of it.

Knows nothing of how rows were made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.ablation.report import AblationReport, in_order, notes_of, write_tables
from experiments.ablation.session.goals import Goal
from experiments.show import show_table

Row = dict[str, Any]


def report_sections(out: Path, rows: Sequence[Row], made: Row, notes: Sequence[str]) -> list[Path]:
    """Report, tables and plots of every section that has measured points, in a folder of its name."""
    from pandas import DataFrame

    files: list[Path] = []
    for name in dict.fromkeys(row["section"] for row in rows):
        measured = [row for row in rows if row["section"] == name and row.get("p50_us") is not None]
        if not measured:
            continue
        folder = out / name
        folder.mkdir(exist_ok=True)
        frame = in_order(DataFrame(measured))
        report = AblationReport(folder, frame, [*notes, *_left_out(rows, name), *notes_of(frame)])
        packages = made.get("packages") or {}
        write_tables(report, f"torch {packages.get('torch')}, Triton {packages.get('triton')}.")
        files += report.files
    return files


def _left_out(rows: Sequence[Row], name: str) -> list[str]:
    reasons = [row.get("skipped") or row.get("failed") for row in rows if row["section"] == name]
    return [f"{reasons.count(reason)} points left out: {reason}" for reason in dict.fromkeys(filter(None, reasons))]


def summary_of(rows: Sequence[Row], goals: Sequence[Goal], bench: Row, files: Sequence[Path], seconds: float) -> Row:
    """The last line of a session. `bench`: the device and its ceilings, as a worker told them; empty if none did."""
    failed = [
        {key: row.get(key) for key in ("section", "variant", "block_size", "batch", "context", "failed")}
        for row in rows
        if row.get("failed")
    ]
    return {
        "device": bench.get("device"),
        "measured": sum(row.get("p50_us") is not None for row in rows),
        "skipped": sum(bool(row.get("skipped")) for row in rows),
        "failed": len(failed),
        "failures": failed,
        "seconds": round(seconds, 1),
        **{key: value for key, value in bench.items() if key != "section"},
        "goals": [goal.row() for goal in goals],
        "files": [str(file) for file in files],
    }


def show_goals(goals: Sequence[Goal], summary: Row) -> None:
    """The goals on standard error."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    table = [
        [
            goal.name,
            f"{'≥' if goal.at_least else '≤'} {goal.wanted:g}",
            "-" if goal.got is None else f"{goal.got:.3f}",
            words[goal.met],
        ]
        for goal in goals
    ]
    head = f"{summary['device']}: {summary['measured']} points measured, {summary['skipped']} skipped, "
    print(f"{head}{summary['failed']} failed, {summary['seconds']:.0f} s", file=sys.stderr)
    if goals:
        show_table("speed goals", ["goal", "wanted", "got", ""], table)
