"""Any sweep folder as one table (parquet, markdown, a page that stands alone) and plots; also of many machines.

    python -m experiments.report runs/quick/stdlib_agent
    python -m experiments.report machine_a/runs machine_b/runs --out joined

Hit rates are token hit rates, of prompt tokens, unless a column says otherwise. Runs over different workloads, or with
different pools under one name, are refused: their rates do not compare. Records whose config names a `report` of their
own are handed to that function.

Knows nothing of how the runs were made.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.atomic import json_line
from experiments.cli import cli
from experiments.errors import UserError
from experiments.record import StoredRecord
from experiments.reporting.joined import join, refuse_mixtures
from experiments.reporting.markdown import markdown
from experiments.reporting.names import run_name
from experiments.reporting.page import page
from experiments.reporting.table import one_row_per_point, short_table, table
from experiments.show import show_table
from experiments.sweep_report import SweepReport

Row = dict[str, Any]


class NothingToCompare(UserError):
    """The records hold no hit rates of single pools: each run's own tables and plots are its result."""


class Report(SweepReport):
    """A table of replays."""

    def summary(self) -> Row:
        """What one tracked run may say of all: how many, and the best online policy of each pool."""
        online = self.frame[self.frame.base != "belady"]
        best: Any = online.loc[online.groupby("pool_group").token_hit_rate.idxmax()].itertuples()
        return {
            "runs": len(self.frame),
            "workload": self.frame.workload.iloc[0],
            "workload_fingerprint": self.frame.workload_fingerprint.iloc[0],
            "best": {
                row.pool_group: {
                    "policy": row.policy,
                    "block_size": int(row.block_size),
                    "token_hit_rate": row.token_hit_rate,
                }
                for row in best
            },
        }

    def show(self) -> None:
        """The short table and the notes, on standard error."""
        columns, rows = short_table(self.frame)
        show_table("token hit rate, of prompt tokens (share of the LRU-Belady gap closed)", columns, rows)
        for note in self.notes:
            print(f"note: {note}", file=sys.stderr)
        print(f"report: {self.folder / 'report.html'}", file=sys.stderr)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="folders with records of runs, at any depth")
    parser.add_argument("--out", type=Path, help="where to write the report (default: the first folder)")
    parser.add_argument("--question", help="what the runs are to answer, for the head of the page")
    options = parser.parse_args()
    report = write_report(*options.folders, out=options.out, question=options.question)
    report.show()
    sys.stderr.flush()
    print(json_line({"runs": len(report.rows()), "files": [str(path) for path in report.files]}))


def write_report(folder: Path, *more: Path, out: Path | None = None, question: str | None = None) -> SweepReport:
    """Read all records below the folders; write `report.html`, `report.parquet`, `report.md` and plots.

    `out`: where to; the first folder where it is None. Raises UserError where there are none, or they do not compare;
    OSError where writing fails.
    """
    from experiments.plots.sweep import draw_sweep

    folders = [folder, *more]
    records, notes = join(folders)
    if own := _own_report(folders, records):
        return own(out or folder, records, notes)
    _refuse_other_kinds(folders, records)
    refuse_mixtures(folders, records)
    frame, observed = table(records)
    report = Report(out or folder, frame, notes + observed)
    report.folder.mkdir(parents=True, exist_ok=True)
    report.add_figures(draw_sweep(one_row_per_point(frame)))
    report.add_frame("report.parquet", frame)
    report.add("report.md", markdown(frame, report.notes, report.plots, records).encode())
    report.add("report.html", page(frame, report.notes, records, question).encode())
    return report


def _own_report(folders: Sequence[Path], records: Sequence[StoredRecord]) -> Callable[..., SweepReport] | None:
    """What the records' configs name under `report`: module and function `(folder, records, notes) -> SweepReport`."""
    kinds: dict[object, StoredRecord] = {}
    for record in records:
        kinds.setdefault(record.config.get("report"), record)
    if len(kinds) > 1:
        one, other = (run_name(record, *folders) for record in list(kinds.values())[:2])
        raise UserError(
            f"{one} and {other} are runs of different experiments, which no one report can show. Report on folders "
            "with one kind each."
        )
    module, _, function = str(next(iter(kinds)) or "").rpartition(".")
    return getattr(importlib.import_module(module), function) if module else None


def _refuse_other_kinds(folders: Sequence[Path], records: Sequence[StoredRecord]) -> None:
    """Raises NothingToCompare where no run has a hit rate at one pool, UserError where only some have."""
    others = [record for record in records if not {"token_hit_rate", "pool_tokens"} <= record.metrics.keys()]
    if len(others) == len(records):
        names = " and ".join(map(str, folders))
        raise NothingToCompare(f"{names} is no sweep of replays: look at the tables and plots of each run.")
    if others:
        good = next(record for record in records if record not in others)
        raise UserError(
            f"{run_name(others[0], *folders)} has no hit rate at one pool size, as {run_name(good, *folders)} has: "
            "they are runs of different experiments. Report on folders with one kind each."
        )


if __name__ == "__main__":
    cli(main)
