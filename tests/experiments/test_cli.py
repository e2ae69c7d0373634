"""How a run ends at the keyboard."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hydra.utils import instantiate
from support import toy_lab

from experiments.cli import cli, explain
from experiments.errors import UserError


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    toy_lab.make_toy_lab(tmp_path)
    return tmp_path


def test_a_single_run_ends_with_its_metrics_as_one_json_line(lab: Path) -> None:
    code, out, _ = toy_lab.run(lab)
    metrics = toy_lab.last_json(out)
    (folder,) = (lab / "runs" / "toy").iterdir()
    assert code == 0
    assert metrics == toy_lab.last_json((folder / "metrics.json").read_text().replace("\n", " "))
    assert metrics["evictor"] == "lru"
    assert metrics["unbounded"] == "inf"
    assert {path.name for path in folder.iterdir() if path.name[0] != "."} == {
        "config.yaml",
        "environment.json",
        "manifest.json",
        "metrics.json",
        "results.parquet",
        "series.parquet",
    }


def test_what_the_user_can_mend_is_one_paragraph_without_a_traceback(lab: Path) -> None:
    code, out, err = toy_lab.run(lab, "fail=lru")
    assert (code, out, err) == (2, "", "error: told to fail\n")


def test_a_bug_shows_its_traceback(lab: Path) -> None:
    code, _, err = toy_lab.run(lab, "fail=bug")
    assert code == 1
    assert "Traceback" in err
    assert "KeyError: 'a bug'" in err


def test_a_plot_that_cannot_be_drawn_costs_the_plot_and_not_the_run(lab: Path) -> None:
    code, out, err = toy_lab.run(lab, "fail=plot")
    assert (code, toy_lab.last_json(out)["requests"]) == (0, 5)
    assert "not all plots could be drawn (LinAlgError: Singular matrix)" in err


def test_an_unknown_override_is_refused_with_the_settings_there_are(lab: Path) -> None:
    code, out, err = toy_lab.run(lab, "nonsense=1")
    assert code == 2
    assert out == ""
    assert err.startswith("error: there is no setting nonsense. The settings are record, allocator")
    assert "Traceback" not in err


def test_a_wrong_value_in_a_yaml_is_told_with_its_place() -> None:
    with pytest.raises(Exception, match="mode must be") as error:
        instantiate({"tracker": {"_target_": "experiments.tracker.wandb.WandB", "project": "p", "mode": "x"}})
    assert explain(error.value) == "tracker: mode must be one of offline, online, disabled, got x"


def test_an_interrupt_ends_with_130_and_a_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        cli(interrupted)
    assert end.value.code == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_file_and_what_to_do() -> None:
    text = explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/metrics.json"))
    assert text is not None
    assert text.startswith("runs/metrics.json: No space left on device.")
    assert "free some space" in text


def test_debugging_shows_the_traceback_of_a_users_error_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")
    monkeypatch.setenv("PAGELAB_DEBUG", "1")

    def wrong() -> None:
        raise UserError("mend this")

    with pytest.raises(SystemExit) as end:
        cli(wrong)
    assert end.value.code == 2
    assert "Traceback" in capsys.readouterr().err
