"""The live view in a terminal: how far, how well, how full, and what is shared.

Drawn in the thread of the run, when the watcher says so: no second thread competes with it.

Knows nothing of the run; it draws snapshots.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cache.tokens import unpack
from experiments.live.lines import progress
from experiments.live.watcher import Snapshot
from experiments.plots.style import thousands

BAR = 36
SPARK = "▁▂▃▄▅▆▇█"
MOST_COLUMNS = 100
Name = Callable[[list[int]], str]
"""Token ids to what a person recognises them by."""


class Dashboard:
    """A panel that is drawn over again, and stays when the run is over."""

    def __init__(self, console: Console, name: Name | None = None, pause: float = 0.25) -> None:
        """`name`: how a prefix is shown, by its last tokens; None: as token ids."""
        self.pause = pause
        self._name = name or _ids
        self._rates: list[float] = []
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        """Draw it in place of the one before."""
        if snapshot.recent_hit_rate is not None:
            self._rates = [*self._rates, snapshot.recent_hit_rate][-BAR:]
        self._live.update(draw(snapshot, self._rates, self._name), refresh=True)

    def close(self) -> None:
        """Give the cursor back; the last picture stays."""
        self._live.stop()


def draw(snapshot: Snapshot, rates: list[float], name: Name) -> RenderableType:
    """The whole panel. `rates`: recent hit rates, oldest first."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(no_wrap=True)
    facts.add_column(style="dim", overflow="ellipsis", no_wrap=True)
    facts.add_row("progress", _progress_bar(snapshot), progress(snapshot))
    facts.add_row("hit rate", _bar(((snapshot.hit_rate, "blue"),)), f"{snapshot.hit_rate:.1%} of prompt tokens")
    recent = "" if snapshot.recent_hit_rate is None else f"{snapshot.recent_hit_rate:.1%} lately"
    facts.add_row("", Text(sparkline(rates), style="blue"), recent)
    facts.add_row("blocks", _water(snapshot), _water_text(snapshot))
    facts.add_row("evictions", Text(f"{snapshot.evictions:,}"), "blocks")
    for key, value in snapshot.more.items():
        facts.add_row(key, Text(value), "")
    parts: list[RenderableType] = [facts]
    if snapshot.top:
        parts += [Text(), _shared(snapshot, name)]
    return Panel(Group(*parts), title=f"[bold]{snapshot.title}[/bold]", title_align="left", width=MOST_COLUMNS)


def sparkline(rates: list[float]) -> str:
    """Shares of one as a row of small bars."""
    return "".join(SPARK[min(int(rate * len(SPARK)), len(SPARK) - 1)] for rate in rates)


def _progress_bar(snapshot: Snapshot) -> RenderableType:
    if snapshot.total is None:
        return Text("?" if not snapshot.over else "done", style="dim")
    return ProgressBar(total=max(snapshot.total, 1), completed=snapshot.done, width=BAR, complete_style="green")


def _bar(parts: tuple[tuple[float, str], ...]) -> Text:
    text = Text()
    for share, style in parts:
        text.append("█" * round(share * BAR), style=style)
    text.append("░" * max(0, BAR - len(text)), style="dim")
    return text


def _water(snapshot: Snapshot) -> Text:
    pool = snapshot.in_use + snapshot.cached + snapshot.free
    pool = pool if pool < inf else 2 * max(snapshot.in_use + snapshot.cached, 1)
    return _bar(((snapshot.in_use / pool, "yellow"), (snapshot.cached / pool, "green")))


def _water_text(snapshot: Snapshot) -> Text:
    text = Text(style="dim")
    text.append(f"{thousands(snapshot.in_use)} in use", style="yellow")
    text.append(f" {thousands(snapshot.cached)} cached", style="green")
    return text.append(f" {thousands(snapshot.free)} free")


def _shared(snapshot: Snapshot, name: Name) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("shared prefix", "requests", "tokens saved"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column) + 1)
    table.add_column("ends in", overflow="ellipsis", no_wrap=True, style="dim")
    for shared in snapshot.top:
        cells = (f"{shared.tokens:,} tokens", f"{shared.requests:,}", thousands(shared.saved))
        table.add_row(*cells, Text(name(unpack(shared.tail))))
    return table


def _ids(tokens: list[int]) -> str:
    return "… " + " ".join(map(str, tokens[-4:]))
