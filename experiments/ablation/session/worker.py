"""The process that holds the device: `python -m experiments.ablation.session.worker`, started by the session alone.

Knows nothing of time left, nor of what becomes of its rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from experiments.ablation.session.bench import gpu_bench, rehearsal_bench, rehearsed
from experiments.ablation.session.pipe import send
from experiments.ablation.session.plan import Section, session_plan
from experiments.ablation.session.run import points_of, run_points

ROOT = Path(__file__).parents[3]


def plan_for(only: str, rehearse: bool) -> list[Section]:
    """Sections whose name contains `only`; a few points of each to rehearse. The same in every process."""
    plan = [section for section in session_plan() if only in section.name]
    return rehearsed(plan) if rehearse else plan


def spawn(first: int, fd: int, only: str, rehearse: bool) -> subprocess.Popen[bytes]:
    """A worker that measures from point `first` of the plan on and writes its messages to `fd`."""
    options = ["--rehearse"] if rehearse else []
    return subprocess.Popen(
        [sys.executable, "-m", __name__, "--first", str(first), "--fd", str(fd), "--only", only, *options],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sys.stderr, pass_fds=(fd,),
    )  # fmt: skip


def main() -> int:
    """0 at the end of the plan, 3 where the device was lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int)
    parser.add_argument("--fd", type=int)
    parser.add_argument("--only")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    bench = rehearsal_bench() if options.rehearse else gpu_bench()
    found = {"section": "ceilings", "device": bench.device_name, **bench.ceilings.row()}
    send(options.fd, {"kind": "bench", "row": found})
    points = points_of(plan_for(options.only, options.rehearse))[options.first :]
    whole = run_points(
        points,
        bench,
        lambda row: send(options.fd, {"kind": "row", "row": row}),
        lambda: send(options.fd, {"kind": "begin"}),
    )
    return 0 if whole else 3


if __name__ == "__main__":
    sys.exit(main())
