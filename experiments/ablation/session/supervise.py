"""Keep a session alive and on time: points are measured in a worker process, and whoever takes it down is left behind.

    worker   begin 0 · row 0 · begin 1 · row 1 · begin 2 ──× dies, hangs, or loses the device
    worker                                                 begin 3 · row 3 · …             until the plan or time ends

A point that kills its worker, or outlasts `point_seconds`, costs itself; the next worker begins behind it. At the
deadline the worker is stopped wherever it is. A worker that cannot even begin a point is tried once more.

Knows nothing of kernels or of what a row holds: a worker's messages are `begin`, `row`, and what else it has to say.
"""

from __future__ import annotations

import queue
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.ablation.session.pipe import receive

Row = dict[str, Any]
Spawn = Callable[[int, int], "subprocess.Popen[bytes]"]
"""Starts a worker at the point of this index, which writes its messages to this file descriptor."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`deadline` on `clock`, in seconds; `start_seconds`: what a worker may take until its first point begins."""

    deadline: float
    point_seconds: float = 60.0
    start_seconds: float = 120.0
    clock: Callable[[], float] = time.monotonic


def supervise(
    asked: Sequence[Row], spawn: Spawn, limits: Limits, log: Callable[[Row], None], told: Callable[[Row], None]
) -> list[Row]:
    """One row per point of the plan, in order, each logged as it comes. `asked`: what to say of a point not measured.

    `told` gets the `row` of every other message, such as what a worker found out about its device.
    """
    rows: list[Row] = []
    false_starts = 0

    def add(row: Row) -> None:
        rows.append(row)
        log(row)

    while len(rows) < len(asked):
        if limits.clock() >= limits.deadline:
            why = "no time left"
        elif false_starts == 2:
            why = "no worker could be started: see standard error"
        else:
            why = ""
        if why:
            add({**asked[len(rows)], "skipped": why})
            continue
        began, why = _work(spawn, len(rows), len(asked), limits, add, told)
        false_starts = 0 if began else false_starts + 1
        if why:
            at_the_end = limits.clock() >= limits.deadline
            add({**asked[len(rows)], "skipped" if at_the_end else "failed": why})
    return rows


def _work(
    spawn: Spawn, first: int, end: int, limits: Limits, add: Callable[[Row], None], told: Callable[[Row], None]
) -> tuple[bool, str]:
    """Follow one worker from point `first` on: whether it began any, and what became of one it left unfinished."""
    at, is_open, patience, why = first, False, limits.start_seconds, ""
    with receive(lambda fd: spawn(first, fd)) as (worker, messages):
        while at < end:
            left = limits.deadline - limits.clock()
            try:
                message = messages.get(timeout=max(0.0, min(patience, left)))
            except queue.Empty:
                why = "the session's time was up" if left <= patience else f"stopped after {patience:g} seconds"
                break
            if message is None:
                why = f"its worker died (exit code {worker.wait()})"
                break
            is_open = message["kind"] == "begin"
            patience = limits.point_seconds if is_open else limits.start_seconds
            if message["kind"] == "row":
                at += 1
                add(message["row"])
            elif not is_open:
                told(message["row"])
    return is_open or at > first, why if is_open else ""
