"""Execute every notebook from a clean kernel: `python -m experiments.notebooks` (what `make notebooks` runs).

With `--write` the outputs are stored in the files, as they are in git. Knows nothing of what the notebooks show.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).parents[1] / "notebooks"


def execute(path: Path, timeout: int = 120) -> nbformat.NotebookNode:
    """The notebook with its outputs, run in the notebooks' folder. Raises CellExecutionError where a cell fails."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=timeout, resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # time stamps would make every run a change
    return notebook


def main() -> None:
    """Run all notebooks, or those named; exit 1 where a cell failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of notebooks/")
    parser.add_argument("--write", action="store_true", help="store the outputs in the files")
    options = parser.parse_args()
    failed = 0
    for path in options.notebooks:
        if not path.is_file():
            parser.error(f"{path} is no file; the notebooks are {FOLDER.name}/*.ipynb")
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        start = perf_counter()
        try:
            notebook = execute(path)
        except CellExecutionError as error:
            failed += 1
            print(f"{path.name}: failed\n{error}", file=sys.stderr)
            continue
        if options.write:
            nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {perf_counter() - start:.1f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
