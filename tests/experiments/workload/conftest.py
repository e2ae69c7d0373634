"""Tiny files of each schema, plain and zipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., str]


@pytest.fixture(params=["plain", "gzip"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Write:
    """Write rows (objects become JSON lines, strings stand as they are) and return the path; never named .gz."""

    def write(*rows: Any, name: str = "trace") -> str:
        text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        data = text.encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if request.param == "gzip" else data)
        return str(path)

    return write
