"""Tables for people, on standard error: standard output belongs to the JSON line.

Knows nothing of files or plots.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

SILENCE = 15.0
"""Seconds for which a run that is not watched in a terminal says nothing."""


def show_metrics(metrics: dict[str, Any]) -> None:
    """One run: every metric and its value."""
    table = Table(title=None, show_header=False, box=None, pad_edge=False)
    for key, value in metrics.items():
        table.add_row(key, readable(key, value))
    Console(stderr=True, highlight=False).print(table)


@contextmanager
def following(shown: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """The latest row of the time series, until the run ends: one line in a terminal, which changes; elsewhere a line
    for every `SILENCE` seconds, so that a long run in a file or a pipe does not look dead."""
    console = Console(stderr=True, highlight=False)
    if not shown:
        yield lambda row: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda row: status.update(_line(row))
    else:
        start = said = perf_counter()

        def say(row: dict[str, Any]) -> None:
            nonlocal said
            now = perf_counter()
            if now - said >= SILENCE:
                said = now
                print(f"{now - start:,.0f} s: {_line(row)}", file=sys.stderr, flush=True)

        yield say


def _line(row: dict[str, Any]) -> str:
    return " · ".join(f"{key} {readable(key, value)}" for key, value in row.items() if value is not None)


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows of ready-made text; a row of a single cell is a heading, which starts a new section."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        if len(row) == 1:
            table.add_section()
            table.add_row(f"[bold]{row[0]}[/bold]")
        else:
            table.add_row(*row)
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 200)  # a file or a pipe has no edge to cut at
    console.print(table)


def readable(key: str, value: Any) -> str:
    """A metric as people write it: rates in percent, counts in groups of three digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if key.endswith("_rate"):
        return f"{value:.2%}"
    if isinstance(value, int):
        return str(value) if key in ("seed", "block_size") else f"{value:,}"
    if 0 < abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:,.3f}" if value < 1000 else f"{value:,.0f}"
