"""What can be had: one yaml of `conf/data` per data set, so that another one is one more file.

Knows nothing of how files travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from omegaconf import OmegaConf

from experiments.environment import ROOT
from experiments.errors import UserError

FOLDER = ROOT / "conf" / "data"


@dataclass(frozen=True, slots=True)
class DataSet:
    """One file of a public source, and what becomes of it here."""

    name: str
    what: str
    licence: str
    url: str
    save_as: str
    sha256: str | None = None
    """Of what the URL gives; None where the publisher's file changes or was never seen here."""
    convert: str | None = None
    """A function (downloaded file, target) of ours that makes the file the workload reads; None: it is that file."""
    command: str = ""
    """A first command that uses it."""


def catalog() -> list[DataSet]:
    """All data sets, by name."""
    return [
        DataSet(name=file.stem, **OmegaConf.to_container(OmegaConf.load(file)))  # type: ignore[arg-type]
        for file in sorted(FOLDER.glob("*.yaml"))
    ]


def find(names: Sequence[str]) -> list[DataSet]:
    """The data sets of these names. Raises UserError for an unknown one."""
    known = {data.name: data for data in catalog()}
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise UserError(f"{name} is no data set.{hint} There are: {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(names)]


def place(data: DataSet, folder: Path) -> Path:
    """Where a data set lies."""
    return folder / data.save_as
