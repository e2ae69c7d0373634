"""Runs of `prompt_layout` as one table (parquet and markdown) and plots; all are held against the first.

Called by `experiments.report`, because the config of every record names it (`report:` in `conf/prompt_layout.yaml`).
Runs over different talks, on different models, GPUs or pools are refused: their rates and times do not compare.

Knows nothing of how the runs were made.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.atomic import write_whole
from experiments.errors import UserError
from experiments.record import StoredRecord
from experiments.show import show_table
from experiments.sweep_report import SweepReport, rows_of
from experiments.wording import signed_percent

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
CHOICES = ("layout", "template", "field", "field_changes", "history", "common_tokens", "pad", "block_size", "evictor")
SAME = {
    "script_fingerprint": "talks (other words, sessions or turns)",
    "model": "models",
    "gpu": "GPUs",
    "rate": "request rates",
}
TITLE = "one chat, laid out differently (times: simulated; change against the first row)"


class LayoutReport(SweepReport):
    """A table of layouts."""

    def summary(self) -> Row:
        """What one tracked run may say of all: the two ends, and the best."""
        frame = self.frame
        best = frame.iloc[int(frame.token_hit_rate.argmax())]
        ends = {"first": frame.iloc[0], "last": frame.iloc[-1], "best": best}
        told: Row = {"runs": len(frame), "script_fingerprint": frame.script_fingerprint.iloc[0]}
        for name, row in ends.items():
            told[name] = {
                "run": row.label.replace("\n", ", "),
                "token_hit_rate": float(row.token_hit_rate),
                "ttft_p50": float(row.ttft_p50),
            }
        return told

    def show(self) -> None:
        """The table and the notes, on standard error."""
        columns, rows = short_table(self.frame)
        show_table(TITLE, columns, rows)
        for note in self.notes:
            print(f"note: {note}", file=sys.stderr)
        print(f"report: {self.folder / 'report.md'}", file=sys.stderr)


def write_report(folder: Path, records: Sequence[StoredRecord], notes: Sequence[str]) -> LayoutReport:
    """`report.parquet`, `report.md` and plots into `folder`. Raises UserError for a mixture, OSError."""
    from pandas import read_parquet

    from experiments.plots.layout import draw_layouts
    from experiments.plots.style import render

    refuse_mixtures(folder, records)
    frame = table(records)
    report = LayoutReport(folder, frame, [*notes, *notes_of(frame, records)])
    turns = [read_parquet(record.folder / "turns.parquet").assign(label=label_of(record, frame)) for record in records]
    for name, figure in draw_layouts(frame, turns).items():
        for suffix, data in render(figure).items():
            _write(report, f"{name}.{suffix}", data)
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    _write(report, "report.parquet", buffer.getvalue())
    _write(report, "report.md", markdown(report, records[0]).encode())
    return report


def refuse_mixtures(folder: Path, records: Sequence[StoredRecord]) -> None:
    """Raises UserError unless all runs are of the same talks, model, GPU and pool (up to one block)."""
    for key, what in SAME.items():
        seen: dict[str, StoredRecord] = {}
        for record in records:
            seen.setdefault(str(record.metrics.get(key, record.config.get(key))), record)
        if len(seen) > 1:
            first, second = list(seen.values())[:2]
            raise UserError(
                f"{folder} holds runs over {len(seen)} different {what}, which do not compare: "
                f"{first.folder.relative_to(folder)} and {second.folder.relative_to(folder)}. Report on a folder with "
                "one."
            )
    pools = [float(record.metrics["pool_tokens"]) for record in records]
    if max(pools) - min(pools) >= max(record.metrics["block_size"] for record in records):
        raise UserError(
            f"{folder} holds runs with pools of {min(pools):,.0f} to {max(pools):,.0f} tokens: give all the same "
            "(num_blocks= as a share, or left out), so that only the layout differs."
        )


def table(records: Sequence[StoredRecord]) -> DataFrame:
    """One row per run with its `label`: named layouts in order of their names, others by sizes and rate."""
    from pandas import DataFrame

    frame = DataFrame([{**record.metrics, "run": record.folder.name} for record in records])
    named = "layout" in frame and bool(frame.layout.notna().all())
    sizes = [name for name in ("block_size", "common_tokens", "pad") if name in differing(frame)]
    frame = frame.sort_values("run" if named else [*sizes, "token_hit_rate"], ignore_index=True)
    return frame.assign(label=[label(row, differing(frame)) for row in rows_of(frame)])


def differing(frame: DataFrame) -> list[str]:
    """The choices that are not the same in all runs."""
    found = [name for name in CHOICES if name in frame and frame[name].nunique(dropna=False) > 1]
    return found or [name for name in ("field", "history") if name in frame]


def label(row: Row, names: Sequence[str]) -> str:
    """A run in a few words: the layout's name, or the choices that tell it from the others."""
    if row.get("layout") and "layout" in names:
        return str(row["layout"]).lstrip("0123456789_").replace("_", " ")
    texts = {"common_tokens": "common part {}", "block_size": "block {}", "field_changes": "changes per {}"}
    words = [_pad(row) if name == "pad" else texts.get(name, f"{name} {{}}").format(row[name]) for name in names]
    return " · ".join(words)


def label_of(record: StoredRecord, frame: DataFrame) -> str:
    """The label of one record."""
    return str(frame.label[frame.run == record.folder.name].iloc[0])


def short_table(frame: DataFrame) -> tuple[list[str], list[list[str]]]:
    """What differs, then hit rate, tokens per request, times and their change against the first row."""
    names = _shown(frame)
    columns = [name.replace("_", " ") for name in names]
    columns += ["token hit rate", "prompt tokens", "computed", "sent before, again"]
    columns += ["recomputed prefix", "TTFT p50", "change", "p95", "change"]
    real = "real_ttft_ms_p50" in frame
    columns += ["real hit rate", "real TTFT p50", "change"] if real else []
    first, rows = frame.iloc[0], []
    for _, row in frame.iterrows():
        cells = [_cell(name, row) for name in names]
        cells += [f"{row.token_hit_rate:.1%}"]
        cells += [f"{row[f'{name}_per_request']:,.0f}" for name in PER_REQUEST]
        for name in ("ttft_p50", "ttft_p95"):
            cells += [f"{1000 * row[name]:,.0f} ms", _change(row[name], first[name])]
        if real:
            times = row.real_ttft_ms_p50, first.real_ttft_ms_p50
            cells += [f"{row.real_token_hit_rate:.1%}", f"{times[0]:,.0f} ms", _change(*times)]
        rows.append(cells)
    return columns, rows


PER_REQUEST = (
    "prompt_tokens",
    "computed_tokens",
    "resent_tokens_computed",
    "recomputed_prefix_tokens",
)


def markdown(report: LayoutReport, record: StoredRecord) -> str:
    """The report for people: where it comes from, plots, the table, what its columns mean."""
    from pandas import DataFrame

    made, first = record.environment, report.frame.iloc[0]
    git = made.get("git")
    commit = f"{git['commit'][:10]}{' with changes' if git['dirty'] else ''}" if git else "unknown"
    columns, rows = short_table(report.frame)
    names = len(_shown(report.frame))
    sides = ["left"] * names + ["right"] * (len(columns) - names)
    images = (path for path in report.plots if path.suffix == ".png")
    lines = [
        f"# {len(report.frame)} layouts of one chat",
        "",
        f"{first.requests:,} requests, simulated on {first.gpu} with {first.model}; pool of {first.pool_tokens:,} "
        f"tokens. Commit {commit}; {made.get('cpu')}; Python {made.get('python')}.",
        "",
        *(f"> {note}\n" for note in report.notes),
        *(f"![{path.stem.replace('_', ' ')}]({path.name})\n" for path in images),
        DataFrame(rows, columns=columns).to_markdown(index=False, disable_numparse=True, colalign=sides),
        "",
        "Tokens are means per request. *Sent before, again*: instructions and earlier turns that were computed once "
        "more, which a better layout could save. *Recomputed prefix*: what an infinite cache would have "
        "hit in the same layout; more memory could save it.",
        "",
    ]
    return "\n".join(lines)


def notes_of(frame: DataFrame, records: Sequence[StoredRecord]) -> list[str]:
    """What a reader has to know beside the numbers."""
    notes = []
    if frame.failed.any():
        notes.append(f"{int((frame.failed > 0).sum())} runs refused requests: rates and times are of those served")
    if "real_ttft_ms_p50" in frame:
        counts = sorted({int(count) for count in frame.real_requests})
        notes.append(
            f"real: SmolLM2 on {records[0].environment.get('cpu')}, the first {'/'.join(map(str, counts))} prompts, "
            "one at a time; answers are not those of the script, so earlier answers hit only once they were in a prompt"
        )
    if len({record.environment.get("source_sha256") for record in records}) > 1:
        notes.append("the runs were made by different versions of the source (record.redo=true runs them again)")
    return notes


def _shown(frame: DataFrame) -> list[str]:
    """Columns that tell runs apart; the name of a layout says it all."""
    names = differing(frame)
    return [name for name in names if "layout" not in names or name not in ("template", "field", "history")]


def _cell(name: str, row: Any) -> str:
    return _pad(row) if name == "pad" else str(row["label"] if name == "layout" else row[name])


def _pad(row: Any) -> str:
    return f"filled to {row['prefix_tokens']}" if row["pad"] else "as it is"


def _change(value: float, before: float) -> str:
    change = value / before - 1
    return "" if change == 0 else signed_percent(change)


def _write(report: LayoutReport, name: str, data: bytes) -> None:
    write_whole(report.folder / name, data)
    report.files.append(report.folder / name)
