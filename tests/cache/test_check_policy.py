"""`python -m cache.evictor.check`: a sound policy passes, each kind of unsound one is told what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from cache.evictor.check import main

HEAD = """
from cache.evictor.ranked import RankedEvictor

class Mine(RankedEvictor):
    def inserted(self, blocks, depth, access, keys):
        {guard}
        self.accessed(blocks, depth, access)

    def accessed(self, blocks, depth, access):
        for i, block in enumerate(blocks):
            self.ranks[block] = {rank}
"""
GUARD = "self.must_be_new(self.ranks, blocks)"


def written(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(text)
    return str(path)


def test_a_sound_policy_keeps_all_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rank = "(access.index // 20) * 1000 - depth - i + 10 ** 6"
    assert main([written(tmp_path, HEAD.format(guard=GUARD, rank=rank))]) == 0
    assert "11 promises kept, 1 does not apply" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("guard", "rank", "broken"),
    [
        ("pass", "access.index // 20 + 10 ** 6", "misuse raises"),
        (GUARD, "(access.index << 32) + (1 << 32) - depth - i", "it differs from lru"),
        (GUARD, "-access.index + 10 ** 6", "a shifted workload recovers"),
    ],
)
def test_a_broken_promise_is_named(
    guard: str, rank: str, broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, HEAD.format(guard=guard, rank=rank))]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if "FAIL" in line]
    assert len(failed) == 1
    assert broken in failed[0]


BY_RUN = """
from cache.evictor.lru import Lru, LruRuns

class Mine(Lru):
    def by_run(self):
        return LruRuns()

    def accessed(self, blocks, depth, access):
        for i, block in enumerate(blocks):
            self.ranks[block] = ({coarse} << 32) - depth - i + (1 << 32)
"""


DEEP = """
from cache.evictor.ranked import RankedEvictor
from cache.evictor.ranked_runs import RankedRuns

class Mine(RankedEvictor):
    def __init__(self, worth):
        super().__init__()
        self.worth = worth

    def inserted(self, blocks, depth, access, keys):
        self.must_be_new(self.ranks, blocks)
        self.accessed(blocks, depth, access)

    def accessed(self, blocks, depth, access):
        for i, block in enumerate(blocks):
            self.ranks[block] = access.index - (depth + i) // self.worth

    def by_run(self):
        return MineRuns(self.worth)

class MineRuns(RankedRuns):
    def __init__(self, worth):
        super().__init__()
        self.worth = worth

    def inserted(self, runs, access, keys):
        self.accessed(runs, access)

    def accessed(self, runs, access):
        for run in runs:
            run.rank = access.index - run.depth // self.worth
"""


@pytest.mark.parametrize("worth", [1, 20, 200, 1000])
def test_a_run_form_that_forgets_the_depth_is_named_however_slowly_the_depth_matters(
    worth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, DEEP), f"worth={worth}"]) == 1
    table = capsys.readouterr().out
    assert any("told of runs it chooses" in line for line in table.splitlines() if "FAIL" in line)


def test_a_policy_that_chooses_otherwise_when_told_of_runs_is_named_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, BY_RUN.format(coarse="access.index // 20 * 20"))]) == 1
    table, last = capsys.readouterr().out.rsplit("\n", 2)[:2]
    failed = [line for line in table.splitlines() if "FAIL" in line]
    assert len(failed) == 1
    assert "told of runs it chooses" in failed[0]
    assert "by run" in table.replace("\n", " ")
    assert last == "1 promise broken, 11 kept"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "defines no policy"),
        ("def f(:\n    pass", "line 1"),
        ("import nowhere_to_be_found", "line 1"),
        ("from cache.evictor.lru import Lru\nclass A(Lru): pass\nclass B(Lru): pass", "--class"),
        ("from cache.evictor.base import Evictor\nclass A(Evictor): pass", "does not say what to do in"),
        ("from cache.evictor.lru import Lru\nclass A(Lru):\n    def __init__(self, k): pass", "key=value"),
    ],
)
def test_a_file_that_cannot_be_checked_exits_2_and_says_why(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, text)]) == 2
    assert said in capsys.readouterr().err


def test_a_missing_file_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.py"]) == 2
    assert "no such file" in capsys.readouterr().err
