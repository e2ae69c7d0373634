"""No point can cost a session more than itself, and no session outlasts its time. The workers here are tiny scripts."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from experiments.ablation.session.supervise import Limits, supervise

WORKER = """
import json, os, sys, time
fd, first, fates = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
def send(kind, **row):
    os.write(fd, (json.dumps({"kind": kind, "row": row}) + "\\n").encode())
send("bench", device="none")
for index in range(first, len(fates)):
    send("begin")
    if fates[index] == "hangs":
        time.sleep(60)
    if fates[index] == "dies":
        os.write(fd, b'{"kind": "row", "row": {"half a li')
        os.abort()
    send("row", index=index)
    if fates[index] == "loses the device":
        sys.exit(3)
"""


def session(fates, limits, code=WORKER):
    starts, lines, told = [], [], []

    def spawn(first, fd):
        starts.append(first)
        return subprocess.Popen([sys.executable, "-c", code, str(fd), str(first), json.dumps(fates)], pass_fds=(fd,))

    rows = supervise([{"index": i, "asked": True} for i in range(len(fates))], spawn, limits, lines.append, told.append)
    assert rows == lines
    assert [row["index"] for row in rows] == list(range(len(fates)))
    return rows, starts, told


def soon(seconds=60.0, **limits):
    return Limits(time.monotonic() + seconds, **limits)


def test_a_worker_that_dies_or_loses_the_device_costs_its_point_and_the_next_begins_behind_it():
    rows, starts, told = session(["", "dies", "", "loses the device", ""], soon())
    assert starts == [0, 2, 4]
    assert told == [{"device": "none"}] * 3
    assert rows[1] == {"index": 1, "asked": True, "failed": "its worker died (exit code -6)"}
    assert [row for row in rows if "failed" in row] == [rows[1]]


def test_a_point_that_hangs_is_given_up():
    rows, starts, _ = session(["", "hangs", ""], soon(point_seconds=0.5))
    assert starts == [0, 2]
    assert rows[1]["failed"] == "stopped after 0.5 seconds"


def test_at_the_deadline_the_worker_is_stopped_wherever_it_is_and_the_rest_skipped():
    begin = time.monotonic()
    rows, starts, _ = session(["", "hangs", "", ""], soon(2.0))
    assert time.monotonic() - begin < 10
    assert starts == [0]
    assert [row.get("skipped") for row in rows] == [None, "the session's time was up", "no time left", "no time left"]


@pytest.mark.parametrize("code", ["import sys; sys.exit(1)", "import time; time.sleep(60)"], ids=["dies", "hangs"])
def test_a_worker_that_never_begins_is_tried_twice(code):
    rows, starts, _ = session(["", ""], soon(start_seconds=0.5), code)
    assert starts == [0, 0]
    assert {row["skipped"] for row in rows} == {"no worker could be started: see standard error"}
