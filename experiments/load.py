"""Does a trace bring more than the GPU serves? Then latencies measure the length of the trace, not the system.

Told from two figures that no order of service changes: how many requests arrive and are served per second, and how many
had not been admitted when the last one arrived.

Knows nothing of what serving costs or of why requests wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

KEEPS_UP = 0.9
"""Of the requests that arrive per second: a system that serves fewer falls behind."""
BACKLOG = 0.1
"""Of all requests: more than that still waiting at the last arrival is a queue that only grew."""


def arrival_rate(rows: Sequence[Row]) -> float | None:
    """Requests per second between the first and the last arrival; None where all arrive at once."""
    times = [row["arrival"] for row in rows]
    span = max(times) - min(times)
    return (len(times) - 1) / span if span else None


def overload(rows: Sequence[Row], served_rate: float) -> str | None:
    """The sentence a reader needs where the system fell behind. `rows`: of `request_row`; `served_rate`: per second."""
    arriving = arrival_rate(rows)
    if arriving is None or served_rate >= KEEPS_UP * arriving:
        return None
    last = max(row["arrival"] for row in rows)
    waiting = sum(row["queued"] is not None and row["arrival"] + row["queued"] > last for row in rows)
    if waiting <= BACKLOG * len(rows):
        return None
    return (
        f"the GPU is overloaded: {arriving:.3g} requests arrive per second and {served_rate:.3g} are served; "
        f"{waiting:,} of {len(rows):,} were still waiting when the last one arrived. Latencies and goodput then tell "
        f"how long the trace is. A rate= below {served_rate:.2g} stretches the arrivals, as sharing them among several "
        "GPUs would; a larger gpu= or a smaller model= serves more; max_requests= only makes the queue shorter."
    )
