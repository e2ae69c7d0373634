"""The live view where there is no terminal: a plain line now and then, for logs and pipes.

Knows nothing of colours or of the cursor.
"""

from __future__ import annotations

from typing import TextIO

from experiments.live.watcher import Snapshot
from experiments.plots.style import thousands


class Lines:
    """One line per look, on the stream it is given."""

    def __init__(self, stream: TextIO, pause: float = 5.0) -> None:
        self.pause = pause
        self._stream = stream

    def show(self, snapshot: Snapshot) -> None:
        """Everything in one line; at the end, one more per shared prefix."""
        print(line(snapshot), file=self._stream, flush=True)
        if snapshot.over:
            for shared in snapshot.top:
                text = f"  shared: {shared.tokens:,} tokens by {shared.requests:,} requests"
                print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to put back."""


def line(snapshot: Snapshot) -> str:
    """A snapshot in one line."""
    words = [
        f"{snapshot.title}: {progress(snapshot)}",
        f"hit rate {snapshot.hit_rate:.1%}",
        f"blocks {snapshot.in_use:,} in use, {snapshot.cached:,} cached, {thousands(snapshot.free)} free",
        f"evictions {snapshot.evictions:,}",
        *(f"{name} {value}" for name, value in snapshot.more.items()),
    ]
    return " · ".join(words)


def progress(snapshot: Snapshot) -> str:
    """How far, how long, how much longer."""
    told = f"{snapshot.done:,}" + (f"/{snapshot.total:,}" if snapshot.total is not None else "") + " requests"
    told += f", {duration(snapshot.seconds)}"
    if snapshot.eta is not None and not snapshot.over:
        told += f", {duration(snapshot.eta)} to go"
    return told


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
