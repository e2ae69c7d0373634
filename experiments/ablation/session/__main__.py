"""A whole GPU session in one command, from a plain argument list; needs neither Hydra nor W&B.

    python -m experiments.ablation.session --out results
    python -m experiments.ablation.session --out rehearsal --rehearse       a tiny one, interpreted, without a GPU

Ceilings first, then the plan (`plan.py`) until the time is up. Every point is a line of `series.jsonl` the moment it
is measured; at the end each section has its table and plots, and the goals are judged: `summary.json`, which is also
the last line of standard output. Exit code 1 where a point failed, 2 where nothing could be run.

Knows nothing of kernels: the plan names them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
REPORT_SECONDS = 30
"""Kept for plots at the end."""
POINT_SECONDS = 15
"""What the last point may take that was begun in time: compiling, checking, timing."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.ablation.session", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder for the lines, tables and plots")
    parser.add_argument("--seconds", type=float, default=450.0, help="of the whole session, about (default 450)")
    parser.add_argument("--only", default="", help="sections whose name contains this")
    parser.add_argument("--rehearse", action="store_true", help="small shapes in Triton's interpreter, on the CPU")
    options = parser.parse_args(argv)
    begin = time.monotonic()
    import torch

    if options.rehearse:
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        print("error: torch sees no GPU; --rehearse runs a small session without one.", file=sys.stderr)
        return 2
    return _session(options, begin)


def _session(options: argparse.Namespace, begin: float) -> int:
    # imported only now: whether kernels are interpreted is settled when they are imported
    from experiments.ablation.session.bench import gpu_bench, rehearsal_bench, rehearsed
    from experiments.ablation.session.goals import judge_goals
    from experiments.ablation.session.plan import session_plan
    from experiments.ablation.session.run import run_plan
    from experiments.ablation.session.summary import report_sections, show_goals, summary_of
    from experiments.atomic import json_file, json_line, write_whole
    from experiments.environment import environment
    from experiments.tracker.jsonl import JsonLines

    options.out.mkdir(parents=True, exist_ok=True)
    deadline = begin + options.seconds - REPORT_SECONDS - POINT_SECONDS
    plan = [section for section in session_plan() if options.only in section.name]
    with JsonLines() as lines:
        lines.start(options.out, "session", None, {})
        made = environment()
        lines.log({"section": "environment", **made})
        bench = rehearsal_bench(deadline) if options.rehearse else gpu_bench(deadline)
        plan = rehearsed(plan) if options.rehearse else plan
        lines.log({"section": "ceilings", "device": bench.device_name, **bench.ceilings.row()})
        rows = run_plan(plan, bench, lines.log)
        lines.finish({}, {}, [])
    notes = ["a rehearsal: small shapes, interpreted; no time here says anything"] if options.rehearse else []
    files = report_sections(options.out, rows, made, notes)
    goals = [] if options.rehearse else judge_goals(rows)
    summary = summary_of(rows, goals, bench, files, time.monotonic() - begin)
    write_whole(options.out / "summary.json", json_file({**summary, "environment": made}))
    show_goals(goals, summary)
    print(json_line(summary))
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
