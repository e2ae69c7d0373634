"""A whole GPU session in one command, from a plain argument list; needs neither Hydra nor W&B.

    python -m experiments.ablation.session --out results
    python -m experiments.ablation.session --out rehearsal --rehearse       a tiny one, interpreted, without a GPU

The plan (`plan.py`) is walked by a worker process until it ends or time is up (`supervise.py`). Every point is a line
of `series.jsonl` the moment it is measured. At the end the goals are judged, `summary.json` is written, and each
section gets its table and plots; the summary is also the last line of standard output. Exit code 1 where a point
failed, 2 where nothing could be run.

Knows nothing of kernels: the plan names them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

from experiments.tracker.jsonl import SERIES, JsonLines

Row = dict[str, Any]
REPORT_SECONDS = 30
"""Kept for tables and plots at the end."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.ablation.session", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder for the lines, tables and plots")
    parser.add_argument("--seconds", type=float, default=450.0, help="of the whole session (default 450)")
    parser.add_argument("--point-seconds", type=float, default=60.0, help="a longer point is given up (default 60)")
    parser.add_argument("--only", default="", help="sections whose name contains this")
    parser.add_argument("--rehearse", action="store_true", help="small shapes in Triton's interpreter, on the CPU")
    options = parser.parse_args(argv)
    begin = time.monotonic()
    if (options.out / SERIES).exists():
        print(f"error: {options.out / SERIES} holds an earlier session; give --out another folder.", file=sys.stderr)
        return 2
    import torch

    if options.rehearse:
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        print("error: torch sees no GPU; --rehearse runs a small session without one.", file=sys.stderr)
        return 2
    return _session(options, begin)


def _session(options: argparse.Namespace, begin: float) -> int:
    # imported only now: whether kernels are interpreted is settled when they are imported
    from experiments.ablation.session import worker
    from experiments.ablation.session.goals import judge_goals
    from experiments.ablation.session.run import asked, points_of
    from experiments.ablation.session.summary import report_sections, show_goals, summary_of
    from experiments.ablation.session.supervise import Limits, supervise
    from experiments.atomic import json_file, json_line, write_whole
    from experiments.environment import environment

    options.out.mkdir(parents=True, exist_ok=True)
    points = [asked(*point) for point in points_of(worker.plan_for(options.only, options.rehearse))]
    limits = Limits(begin + options.seconds - REPORT_SECONDS, options.point_seconds)
    print(
        f"{len(points)} points in {len({row['section'] for row in points})} sections, most wanted first; "
        f"all of it within {options.seconds:.0f} s, {REPORT_SECONDS} of them for tables and plots; "
        f"no point longer than {options.point_seconds:.0f} s; lines in {options.out / SERIES} as they come",
        file=sys.stderr,
    )
    made, bench = environment(), {}
    with JsonLines() as lines:
        lines.start(options.out, "session", None, {})
        lines.log({"section": "environment", **made})

        def spawn(first: int, fd: int) -> Popen[bytes]:
            section, seconds = points[first]["section"], time.monotonic() - begin
            print(f"at {seconds:.0f} s: a worker starts at point {first} ({section})", file=sys.stderr)
            return worker.spawn(first, fd, options.only, options.rehearse)

        def told(row: Row) -> None:
            lines.log(row)
            bench.update(row)

        rows = supervise(points, spawn, limits, lines.log, told)
        lines.finish({}, {}, [])
    goals = [] if options.rehearse else judge_goals(rows)

    def written(files: Sequence[Path]) -> Row:
        summary = summary_of(rows, goals, bench, files, time.monotonic() - begin)
        write_whole(options.out / "summary.json", json_file({**summary, "environment": made}))
        return summary

    show_goals(goals, written([]))  # before the plots, which may be cut short
    notes = ["a rehearsal: small shapes, interpreted; no time here says anything"] if options.rehearse else []
    summary = written(report_sections(options.out, rows, made, notes))
    print(json_line(summary))
    if not bench:
        return 2
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
