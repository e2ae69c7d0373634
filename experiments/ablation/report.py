"""A kernel sweep as one table (parquet and markdown) and plots: the same for timed and for compiled points.

Called by `experiments.report`, because the config of every record names it (`report:` in `conf/kernel_ablation.yaml`).
Points of different devices, or of which some were timed and some compiled, are refused: they do not compare.

Knows nothing of how points were made.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError
from experiments.record import StoredRecord
from experiments.show import show_table
from experiments.sweep_report import SweepReport, rows_of

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]


class AblationReport(SweepReport):
    """A table of kernel points."""

    def summary(self) -> Row:
        """What one tracked run may say of all."""
        frame = self.frame
        passed = bool(frame.check_passed.all())
        summary: Row = {"points": len(frame), "device": frame.device.iloc[0], "all_checks_passed": passed}
        if is_timed(frame):
            return summary | {
                "best_share_of_ceiling": float(frame.share_of_ceiling.max()),
                "fastest_us": float(frame.p50_us.min()),
            }
        return summary | {
            "spilling_points": int((frame.spills > 0).sum()),
            "min_load_bytes": int(frame.load_bytes.min()),
            "max_registers": int(frame.registers.max()),
        }

    def show(self) -> None:
        """The table and the notes, on standard error."""
        columns, rows = short_table(self.frame)
        show_table(title(self.frame), columns, rows)
        if same := constants(self.frame):
            print("the same at every point: " + ", ".join(f"{k} {v}" for k, v in same.items()), file=sys.stderr)
        for note in self.notes:
            print(f"note: {note}", file=sys.stderr)
        print(f"report: {self.folder / 'report.md'}", file=sys.stderr)


def write_report(folder: Path, records: Sequence[StoredRecord], notes: Sequence[str]) -> AblationReport:
    """`report.parquet`, `report.md` and plots into `folder`. Raises UserError for a mixture, OSError."""
    frame = table(folder, records)
    report = AblationReport(folder, frame, [*notes, *_versions(records), *notes_of(frame)])
    write_tables(report, _provenance(records[0]))
    return report


def write_tables(report: AblationReport, provenance: str) -> None:
    """Write plots and both tables of a report, whose frame is ready."""
    from experiments.plots.ablation import draw_ablation

    report.add_figures(draw_ablation(report.frame))
    report.add_frame("report.parquet", report.frame)
    report.add("report.md", markdown(report, provenance).encode())


def table(folder: Path, records: Sequence[StoredRecord]) -> DataFrame:
    """One row per point, in the order of what was swept. Raises UserError unless all are of one device and kind."""
    from pandas import DataFrame

    devices: dict[str, Path] = {}
    for record in records:
        devices.setdefault(str(record.metrics.get("device")), record.folder)
    if len(devices) > 1:
        (first, here), (second, there) = list(devices.items())[:2]
        raise UserError(
            f"{folder} holds points of {len(devices)} devices, which do not compare: {here.relative_to(folder)} is of "
            f"{first}, {there.relative_to(folder)} of {second}. Report on a folder with one."
        )
    return in_order(DataFrame([record.metrics for record in records]))


def in_order(frame: DataFrame) -> DataFrame:
    """Sorted by what was swept, with `walk`: the key tiles one processor's place walks in a row, by a model.

    waves rounded up × key tiles per split, as `kernels.attention.split_kv` reasons; only for compiled attention.
    """
    from experiments.plots.ablation import swept_axes

    if "waves" in frame and "splits" in frame:
        splits = frame.splits.fillna(1)
        frame = frame.assign(walk=_up(frame.waves) * _up(_up(frame.context / frame.tile_kv.astype(float)) / splits))
    return frame.sort_values(swept_axes(frame) or ["device"], ignore_index=True, na_position="first")


def title(frame: DataFrame) -> str:
    """What the table is of."""
    kind = "median time, share of the ceiling of the same run" if is_timed(frame) else "what the compiler made"
    return f"{frame.device.iloc[0]}: {kind}"


def short_table(frame: DataFrame) -> tuple[list[str], list[list[str]]]:
    """What was swept, then the numbers a reader asks for first, less those that are the same at every point."""
    from experiments.plots.ablation import swept_axes

    swept = swept_axes(frame) or ["block_size"]
    cells = [{**{name: _number(row[name]) for name in swept}, **_cells(row, frame)} for row in rows_of(frame)]
    columns = [name for name in cells[0] if name in swept or len(cells) == 1 or name not in constants(frame)]
    return columns, [[row[name] for name in columns] for row in cells]


def constants(frame: DataFrame) -> dict[str, str]:
    """Columns of the table that say the same at every point, and what they say."""
    cells = [_cells(row, frame) for row in rows_of(frame)]
    first = cells[0]
    return {name: first[name] for name in first if len(cells) > 1 and all(row[name] == first[name] for row in cells)}


def _cells(row: Row, frame: DataFrame) -> dict[str, str]:
    from experiments.plots.ablation import baselines_of

    check = f"passed ({row['check_error']:.0e})"
    if is_timed(frame):
        others = {f"{name} µs": _number(row[f"{name}_us"], 1) for name in baselines_of(frame)}
        return {
            "p50 µs": _number(row["p50_us"], 1),
            "p20–p80": f"{_number(row['p20_us'], 1)}–{_number(row['p80_us'], 1)}",
            "host µs": _number(row["host_us"]),
            "GB/s": _number(row["gb_per_s"]),
            "TFLOP/s": _number(row["tflop_per_s"], 1),
            "of ceiling": f"{row['share_of_ceiling']:.0%} of {row['limit']}",
            **others,
            "check": check,
        }
    loads = f"{_number(row['k_load_bytes'])},{_number(row['v_load_bytes'])} B"
    return {
        "chosen splits": _number(row.get("splits")),
        "regs": _number(row["registers"]),
        "spills": _number(row["spills"]),
        "shared": f"{row['shared_bytes'] / 1024:.0f}K",
        "occupancy": f"{row['occupancy']:.0%}",
        "in flight": f"{row['bytes_in_flight'] / 1024:.0f}K",
        "needed": f"{row['bytes_needed'] / 1024:.0f}K",
        "K,V load": loads if row["k_load_bytes"] else f"{_number(row['load_bytes'])} B",
        "matrix": row["matrix_instruction"].split(".")[0] or "-",
        "loop": _number(row["loop_instructions"]),
        "code": f"{row['code_bytes'] / 1024:.0f}K",
        "programs": _number(row["programs"]),
        "waves": _number(row["waves"], 2),
        "floor µs (model)": _number(row["model_floor_us"], 1),
        "check": check.partition(" ")[0],
    }


def markdown(report: AblationReport, provenance: str) -> str:
    """The report for people: where it comes from, plots, the table."""
    from pandas import DataFrame

    columns, rows = short_table(report.frame)
    sides = ["right"] * len(columns)
    same = ", ".join(f"{name} {value}" for name, value in constants(report.frame).items())
    lines = [
        f"# {title(report.frame)}",
        "",
        f"{len(report.frame)} points. {provenance}{f' The same at every point: {same}.' if same else ''}",
        "",
        *(f"> {note}\n" for note in report.notes),
        *(f"![{path.stem.replace('_', ' ')}]({path.name})\n" for path in report.plots if path.suffix == ".png"),
        DataFrame(rows, columns=columns).to_markdown(index=False, disable_numparse=True, colalign=sides),
        "",
    ]
    return "\n".join(lines)


def _versions(records: Sequence[StoredRecord]) -> list[str]:
    if len({record.environment.get("source_sha256") for record in records}) == 1:
        return []
    return ["the points were made by different versions of the source (record.redo=true runs them again)"]


def notes_of(frame: DataFrame) -> list[str]:
    """What a reader has to know beside the numbers: what is a model, what does not fit, which baseline failed where."""
    notes = []
    if not is_timed(frame):
        notes.append("nothing here was run on a GPU: floor µs is bytes / bandwidth (or flops / peak) of the data sheet")
        if (frame.spills > 0).any():
            notes.append(f"{int((frame.spills > 0).sum())} points spill registers")
        if (frame.programs_per_processor == 0).any():
            notes.append(f"{int((frame.programs_per_processor == 0).sum())} points do not fit on a processor at all")
    for column in [column for column in frame.columns if column.endswith("_note")]:
        for reason in sorted(set(frame[column].dropna())):
            count = int((frame[column] == reason).sum())
            notes.append(f"{column.removesuffix('_note')} has no time at {count} points: {reason}")
    return notes


def _provenance(record: StoredRecord) -> str:
    made = record.environment
    git, packages = made.get("git"), made.get("packages") or {}
    commit = f"{git['commit'][:10]}{' with changes' if git['dirty'] else ''}" if git else "unknown"
    return f"Commit {commit}; torch {packages.get('torch')}, Triton {packages.get('triton')}."


def is_timed(frame: DataFrame) -> bool:
    """Whether the points were run on a GPU."""
    return "p50_us" in frame and bool(frame.p50_us.notna().any())


def _up(values: Any) -> Any:
    return -(-values // 1)


def _number(value: Any, digits: int = 0) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else str(value)
