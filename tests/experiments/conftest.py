"""One tokenizer for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.tokenizer import smollm2 as smollm2_module
from experiments.workload import tokenised
from model.tokenizer import MissingModelError, SmolLM2Tokenizer, load_smollm2


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
