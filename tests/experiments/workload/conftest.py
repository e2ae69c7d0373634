"""Tiny files of each schema, plain and zipped, and one tokenizer for all tests of a process."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.tokenizer import smollm2 as smollm2_module
from experiments.workload import tokenised
from model.tokenizer import MissingModelError, SmolLM2Tokenizer, load_smollm2

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


@pytest.fixture(scope="session")
def smollm2() -> SmolLM2Tokenizer:
    try:
        return load_smollm2()
    except MissingModelError as error:
        pytest.skip(str(error))


@pytest.fixture
def cache_dir(smollm2: SmolLM2Tokenizer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An empty cache folder; the tokenizer behind it is loaded once per process, since that takes 2 s."""
    for module in (tokenised, smollm2_module):
        monkeypatch.setattr(module, "load_smollm2", lambda: smollm2)
    return str(tmp_path / "cache")
