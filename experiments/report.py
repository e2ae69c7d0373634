"""Any sweep folder as one table (parquet and markdown) and plots.

    python -m experiments.report runs/quick/stdlib_agent

Hit rates are token hit rates, of prompt tokens, unless a column says otherwise. Runs over different workloads are
refused: their rates do not compare. Records whose config names a `report` of their own are handed to that function.

Knows nothing of how the runs were made.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.atomic import json_line, write_whole
from experiments.cli import cli
from experiments.errors import UserError
from experiments.record import CONFIG, BrokenRecord, StoredRecord, read_record
from experiments.show import readable, show_table
from experiments.sweep_report import SweepReport

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
INF = float("inf")
WORDS = ("nan", "inf", "-inf")
LISTED = 5
"""Broken records named one by one."""


class NothingToCompare(UserError):
    """The records hold no hit rates of single pools: each run's own tables and plots are its result."""


class Report(SweepReport):
    """A table of replays."""

    def summary(self) -> Row:
        """What one tracked run may say of all: how many, and the best online policy of each pool."""
        online = self.frame[self.frame.policy != "belady"]
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
        print(f"report: {self.folder / 'report.md'}", file=sys.stderr)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder with records of runs, at any depth")
    report = write_report(parser.parse_args().folder)
    report.show()
    sys.stderr.flush()
    print(json_line({"runs": len(report.rows()), "files": [str(path) for path in report.files]}))


def write_report(folder: Path) -> SweepReport:
    """Read all records below `folder`; write `report.parquet`, `report.md` and plots into it.

    Raises UserError where there are none, or they do not compare; OSError where writing fails.
    """
    from experiments.plots.style import render
    from experiments.plots.sweep import draw_sweep

    records, notes = read_records(folder)
    if own := _own_report(folder, records):
        return own(folder, records, notes)
    if not all({"token_hit_rate", "pool_tokens"} <= record.metrics.keys() for record in records):
        raise NothingToCompare(f"{folder} is no sweep of replays: look at the tables and plots of each run.")
    refuse_mixtures(folder, records)
    frame, more = table(records)
    report = Report(folder, frame, notes + more)
    for name, figure in draw_sweep(one_row_per_point(frame)).items():
        for suffix, data in render(figure).items():
            _write(report, f"{name}.{suffix}", data)
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    _write(report, "report.parquet", buffer.getvalue())
    _write(report, "report.md", markdown(report, records).encode())
    return report


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


def refuse_mixtures(folder: Path, records: Sequence[StoredRecord]) -> None:
    """Raises UserError unless all records are over the very same requests."""
    seen: dict[str, StoredRecord] = {}
    for record in records:
        seen.setdefault(str(record.metrics.get("workload_fingerprint")), record)
    if len(seen) > 1:
        first, second = list(seen.values())[:2]
        raise UserError(
            f"{folder} holds runs over {len(seen)} different workloads, and hit rates over different requests do not "
            f"compare: {first.folder.relative_to(folder)} is over {_workload(first)}, "
            f"{second.folder.relative_to(folder)} over {_workload(second)}. Report on a folder with one workload."
        )


def _own_report(folder: Path, records: Sequence[StoredRecord]) -> Callable[..., SweepReport] | None:
    """What the records' configs name under `report`: module and function `(folder, records, notes) -> SweepReport`."""
    names = {record.config.get("report") for record in records}
    if len(names) > 1:
        raise UserError(f"{folder} holds runs of different experiments. Report on a folder with one.")
    module, _, function = str(names.pop() or "").rpartition(".")
    return getattr(importlib.import_module(module), function) if module else None


def table(records: Sequence[StoredRecord]) -> tuple[DataFrame, list[str]]:
    """One row per run: its metrics, `policy`, `pool_group` (what counts as the same pool), `gap_closed`; and notes."""
    from pandas import DataFrame

    rows = [{**record.metrics, "run": record.folder.name} for record in records]
    frame = DataFrame(
        {key: _column([row.get(key) for row in rows]) for key in dict.fromkeys(k for r in rows for k in r)}
    )
    for column in ("num_blocks", "pool_tokens"):
        frame[column] = frame[column].astype(float)
    frame["policy"] = _policies(frame)
    frame["pool_group"] = [_pool_group(row) for row in frame.itertuples()]
    frame["gap_closed"] = _gap_closed(frame)
    front = ["policy", "block_size", "pool_group", "token_hit_rate", "ceiling_token_hit_rate", "gap_closed"]
    frame = frame[front + [column for column in frame.columns if column not in front]]
    frame = frame.sort_values(["block_size", "pool_tokens", "token_hit_rate"], ignore_index=True)
    return frame, _notes(frame, records)


def one_row_per_point(frame: DataFrame) -> DataFrame:
    """Means over runs that differ only in their seed."""
    keys = ["policy", "block_size", "pool_group"]
    values = ["pool_tokens", "num_blocks", "token_hit_rate", "ceiling_token_hit_rate", "gap_closed"]
    return frame.groupby(keys, as_index=False)[values].mean()


def short_table(frame: DataFrame) -> tuple[list[str], list[list[str]]]:
    """Columns are pools, rows policies, a section for every block size."""
    points = one_row_per_point(frame)
    groups = list(points.sort_values("pool_tokens").pool_group.unique())
    rows: list[list[str]] = []
    for size, part in points.groupby("block_size"):
        rows.append([f"{size} tokens per block"])
        best = part.groupby("policy").token_hit_rate.mean().sort_values()
        for policy in best.index:
            cells = [part[(part.policy == policy) & (part.pool_group == group)] for group in groups]
            rows.append([policy, *(_cell(cell) for cell in cells)])
        ceilings = [part[part.pool_group == group].ceiling_token_hit_rate.max() for group in groups]
        rows.append(["infinite cache", *("" if value != value else f"{value:.1%}" for value in ceilings)])
    return ["policy", *(f"pool {group}" for group in groups)], rows


def markdown(report: Report, records: Sequence[StoredRecord]) -> str:
    """The report for people: where it comes from, plots, the short table, every run."""
    frame, first = report.frame, records[0]
    commits = sorted({_commit(record) for record in records})
    columns, rows = short_table(frame)
    bold = [[f"**{row[0]}**", *[""] * (len(columns) - 1)] if len(row) == 1 else row for row in rows]
    wanted = ["policy", "block_size", "num_blocks", "pool_tokens", "token_hit_rate", "block_hit_rate"]
    wanted += ["request_hit_rate", "recomputed_prefix_tokens_per_request", "evictions", "refused", "blocks_per_second"]
    wanted = [column for column in wanted if column in frame]
    every = [[_readable(key, getattr(run, key)) for key in wanted] for run in frame.itertuples()]
    lines = [
        f"# {len(frame)} runs over {_workload(first)}",
        "",
        f"{first.metrics.get('requests', 0):,} requests, {first.metrics.get('prompt_tokens', 0):,} prompt tokens. "
        f"Commit {', '.join(commits)}; {first.environment.get('cpu')}; Python {first.environment.get('python')}.",
        "",
        *(f"> {note}\n" for note in report.notes),
        *(f"![{path.stem.replace('_', ' ')}]({path.name})\n" for path in report.plots if path.suffix == ".png"),
        "## Token hit rate, of prompt tokens",
        "",
        "In brackets: share of the gap between LRU and Belady closed.",
        "",
        _markdown(columns, bold),
        "",
        "## Every run",
        "",
        _markdown(wanted, every),
        "",
    ]
    return "\n".join(lines)


def _write(report: Report, name: str, data: bytes) -> None:
    write_whole(report.folder / name, data)
    report.files.append(report.folder / name)


def _column(values: list[Any]) -> list[Any]:
    """A record writes what JSON cannot hold as a word; among numbers it becomes a number again."""
    others = [value for value in values if value not in WORDS]
    if others and all(isinstance(value, int | float) for value in others):
        return [float(value) if value in WORDS else value for value in values]
    return values


def _policies(frame: DataFrame) -> list[str]:
    """The evictor, and of the allocator and hasher only what differs between runs."""
    names = []
    shared = frame[frame.allocator != "naive"]
    for row in frame.itertuples():
        if row.allocator == "naive":
            names.append("no sharing")
            continue
        extra = [str(getattr(row, key)) for key in ("allocator", "hasher") if shared[key].nunique() > 1]
        names.append(" ".join([str(row.evictor), *(f"({name})" for name in extra)]))
    return names


def _pool_group(row: Any) -> str:
    """Pools asked for as a share hold the same tokens at any block size; pools counted in blocks do not."""
    asked = str(row.pool)
    return asked if asked.endswith("%") or row.pool_tokens == INF else f"{row.pool_tokens:,.0f} tokens"


def _gap_closed(frame: DataFrame) -> list[float]:
    means = frame.groupby(["policy", "block_size", "pool_group"]).token_hit_rate.mean().to_dict()
    shares = []
    for row in frame.itertuples():
        low = means.get(("lru", row.block_size, row.pool_group), float("nan"))
        high = means.get(("belady", row.block_size, row.pool_group), float("nan"))
        known = high > low and row.policy != "no sharing"
        shares.append((row.token_hit_rate - low) / (high - low) if known else float("nan"))
    return shares


def _notes(frame: DataFrame, records: Sequence[StoredRecord]) -> list[str]:
    notes = []
    refused = frame[frame.refused > 0] if "refused" in frame else frame[:0]
    if len(refused):
        notes.append(f"{len(refused)} runs refused requests larger than their pool: rates are of the requests served")
    finite = frame[frame.pool_tokens < INF]
    sizes, spread = finite.block_size.nunique(), finite.groupby("pool_group").block_size.nunique()
    if sizes > 1 and len(spread) and spread.max() == 1:
        notes.append(
            "block sizes are not compared, because each has pools of its own size in tokens: give num_blocks as a "
            "share of the workload (num_blocks=5%) to compare them"
        )
    if len({record.environment.get("source_sha256") for record in records}) > 1:
        notes.append("the runs were made by different versions of the source (record.redo=true runs them again)")
    return notes


def _cell(part: DataFrame) -> str:
    if part.empty:
        return ""
    policy, rate, gap = part.policy.iloc[0], part.token_hit_rate.iloc[0], part.gap_closed.iloc[0]
    return f"{rate:.1%}" if gap != gap or policy in ("lru", "belady") else f"{rate:.1%} ({gap:+.0%})"


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from pandas import DataFrame

    sides = ["left", *["right"] * (len(columns) - 1)]
    return DataFrame(rows, columns=list(columns)).to_markdown(index=False, disable_numparse=True, colalign=sides)


def _readable(key: str, value: Any) -> str:
    return readable(key, int(value) if key in ("num_blocks", "pool_tokens") and value < INF else value)


def _workload(record: StoredRecord) -> str:
    return f"{record.metrics.get('workload')} ({str(record.metrics.get('workload_fingerprint'))[:12]})"


def _commit(record: StoredRecord) -> str:
    git = record.environment.get("git")
    return f"{git['commit'][:10]}{' with changes' if git['dirty'] else ''}" if git else "unknown"


if __name__ == "__main__":
    cli(main)
