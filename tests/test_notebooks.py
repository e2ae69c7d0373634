from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_notebook_runs_from_a_clean_kernel_and_is_stored_with_its_outputs(path: Path) -> None:
    import nbformat

    from experiments.notebooks import execute

    stored = nbformat.read(path, as_version=4)
    assert all(cell.outputs or "=" in cell.source for cell in stored.cells if cell.cell_type == "code")
    execute(path)
