"""A report for people as markdown: where it comes from, plots, the short table, every run.

Knows nothing of how the table was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.record import StoredRecord
from experiments.reporting.names import commit_of, workload_of
from experiments.reporting.table import INF, short_table
from experiments.show import readable

if TYPE_CHECKING:
    from pandas import DataFrame

WANTED = (
    "policy",
    "block_size",
    "num_blocks",
    "pool_tokens",
    "token_hit_rate",
    "block_hit_rate",
    "request_hit_rate",
    "recomputed_prefix_tokens_per_request",
    "evictions",
    "refused",
    "blocks_per_second",
)
"""Columns of the table of every run, where a run has them."""


def markdown(frame: DataFrame, notes: Sequence[str], plots: Sequence[Path], records: Sequence[StoredRecord]) -> str:
    """The whole text; `plots`: images that lie beside it."""
    first = records[0]
    commits = sorted({commit_of(record) for record in records})
    columns, rows = short_table(frame)
    wanted = [column for column in WANTED if column in frame]
    every = [[readable_cell(key, getattr(run, key)) for key in wanted] for run in frame.itertuples()]
    lines = [
        f"# {len(frame)} runs over {workload_of(first)}",
        "",
        f"{first.metrics.get('requests', 0):,} requests, {first.metrics.get('prompt_tokens', 0):,} prompt tokens. "
        f"Commit {', '.join(commits)}; {first.environment.get('cpu')}; Python {first.environment.get('python')}.",
        "",
        *(f"> {note}\n" for note in notes),
        *(f"![{path.stem.replace('_', ' ')}]({path.name})\n" for path in plots if path.suffix == ".png"),
        "## Token hit rate, of prompt tokens",
        "",
        "In brackets: share of the gap between LRU and Belady closed.",
        "",
        as_markdown(columns, rows),
        "",
        "## Every run",
        "",
        as_markdown(wanted, every),
        "",
    ]
    return "\n".join(lines)


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of ready-made text; a row of a single cell is a heading."""
    from pandas import DataFrame

    sides = ["left", *["right"] * (len(columns) - 1)]
    filled = [[f"**{row[0]}**", *[""] * (len(columns) - 1)] if len(row) == 1 else row for row in rows]
    return DataFrame(filled, columns=list(columns)).to_markdown(index=False, disable_numparse=True, colalign=sides)


def readable_cell(key: str, value: Any) -> str:
    """A cell of the table as people write it."""
    return readable(key, int(value) if key in ("num_blocks", "pool_tokens") and value < INF else value)
