"""What people see on standard error."""

from __future__ import annotations

import pytest

from experiments import show


def test_a_long_run_that_nobody_watches_in_a_terminal_says_now_and_then_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = iter([0.0, 1.0, 16.0, 17.0, 40.0])
    monkeypatch.setattr(show, "perf_counter", lambda: next(now))
    with show.following(shown=True) as follow:
        for request in range(4):
            follow({"request": request, "hit_rate": 0.5, "free_blocks": None})
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["16 s: request 1 · hit_rate 50.00%", "40 s: request 3 · hit_rate 50.00%"]


def test_a_job_that_is_not_shown_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "SILENCE", 0.0)
    with show.following(shown=False) as follow:
        follow({"request": 1})
    assert capsys.readouterr().err == ""
