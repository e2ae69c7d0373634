"""Every yaml of every group composes into a run and builds the object it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.errors import ConfigCompositionException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from support.conf import CONF, composed, options

GROUPS = [
    (group.name, option)
    for group in sorted(CONF.iterdir())
    if group.is_dir() and group.name in {"allocator", "evictor", "hasher", "workload", "tracker", "ledger"}
    for option in options(group.name)
]


@pytest.mark.parametrize(("group", "option"), GROUPS, ids=lambda x: x)
def test_every_option_composes_and_instantiates(
    group: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGELAB_DATA", str(tmp_path))
    cfg = composed(f"{group}={option}", "num_blocks=8", "block_size=4")
    built = instantiate(cfg[group])
    assert type(built).__module__ == cfg[group]._target_.rpartition(".")[0]


@pytest.mark.parametrize("option", options("sweep"))
def test_every_sweep_is_a_grid_in_a_file_whose_first_comment_is_its_command(option: str) -> None:
    path = CONF / "sweep" / f"{option}.yaml"
    package, command, *_ = path.read_text("utf-8").splitlines()
    assert package == "# @package _global_", "Hydra reads the package from the very first line"
    assert command.endswith(f"sweep={option}")
    assert OmegaConf.load(path).hydra.sweeper.params


@pytest.mark.parametrize("option", options("sweep"))
def test_what_a_sweep_fixes_is_what_its_jobs_get(option: str) -> None:
    """The primary yaml comes last and has the last word: what it sets itself, only a parameter of the sweep changes."""
    path = CONF / "sweep" / f"{option}.yaml"
    command = path.read_text("utf-8").splitlines()[1]
    cfg = composed(f"sweep={option}", config_name=command.split("experiments.")[1].split()[0])
    told = {key: value for key, value in OmegaConf.load(path).items() if key not in ("hydra", "defaults")}
    for key, value in told.items():
        if OmegaConf.is_dict(value):
            raw = OmegaConf.to_container(cfg[key], resolve=False)
            assert {name: raw[name] for name in value} == OmegaConf.to_container(value, resolve=False)
        else:
            assert cfg[key] == value


def test_an_unknown_override_is_refused() -> None:
    with pytest.raises(ConfigCompositionException, match="nonsense"):
        composed("nonsense=1")
