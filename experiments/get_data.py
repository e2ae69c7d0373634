"""Fetch public traces into the data folder: `python -m experiments.get_data mooncake airline_text`.

Without a name it lists what there is. Interrupted downloads are gone on with, checksums are compared where one is
known, and a file that is there already is left alone. The folder is $PAGELAB_DATA, or `data/`, or --folder.

Knows nothing of the schemas of what it fetches.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from hydra.utils import get_method
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from experiments.atomic import json_line
from experiments.cli import cli
from experiments.data.catalog import DataSet, catalog, find, place
from experiments.data.download import download


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m experiments.get_data", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="data sets; none: list them")
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("PAGELAB_DATA", "data")))
    parser.add_argument(
        "--mirror", help="fetch from here instead of the publisher: scheme and host put before the path"
    )
    parser.add_argument("--accept", action="store_true", help="take a file although its checksum is another one")
    parser.add_argument("--again", action="store_true", help="fetch it although it is there")
    options = parser.parse_args()
    if not options.names:
        _list(options.folder)
        return
    files = []
    for data in find(options.names):
        files.append(get(data, options.folder, options.mirror, options.accept, options.again))
    sys.stderr.flush()
    print(json_line({"folder": str(options.folder), "files": files}))


def get(data: DataSet, folder: Path, mirror: str | None, accept: bool, again: bool) -> dict[str, str | None]:
    """One data set; says on standard error what it does. Raises UserError as `download` and the converters do."""
    target = place(data, folder)
    if target.exists() and not again:
        print(f"{data.name}: {target} is there", file=sys.stderr)
        return {"name": data.name, "path": str(target), "sha256": None}
    folder.mkdir(parents=True, exist_ok=True)
    url = data.url if mirror is None else mirror.rstrip("/") + urlsplit(data.url).path
    print(f"{data.name}: {data.what} ({data.licence})\n  from {url}\n  to {target}", file=sys.stderr)
    raw = target if data.convert is None else target.with_name(f"{target.name}.raw")
    found = _download(data.name, url, raw, None if accept else data.sha256)
    if data.convert is not None:
        get_method(data.convert)(raw, target)
        raw.unlink()
    if data.sha256 is None:
        print(f"  no checksum is known; this one is {found}", file=sys.stderr)
    if data.command:
        print(f"  try: {data.command}", file=sys.stderr)
    return {"name": data.name, "path": str(target), "sha256": found}


def _download(name: str, url: str, target: Path, sha256: str | None) -> str:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(name, total=None)
        return download(url, target, sha256, lambda done, total: bar.update(task, completed=done, total=total))


def _list(folder: Path) -> None:
    print(f"python -m experiments.get_data NAME ... puts into {folder}:", file=sys.stderr)
    for data in catalog():
        there = ", there" if place(data, folder).exists() else ""
        print(f"  {data.name:20}{data.what} ({data.licence}{there})", file=sys.stderr)
    sys.stderr.flush()
    print(json_line({"folder": str(folder), "names": [data.name for data in catalog()]}))


if __name__ == "__main__":
    cli(main)
