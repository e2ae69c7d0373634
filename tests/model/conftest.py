"""One SmolLM2 for all tests of a worker; one thread."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.conf import MODELS


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tests run side by side: two workers with two threads each wait for one another at every barrier."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def smollm2() -> Any:
    from model.pretrained import smollm2 as load
    from model.tokenizer import MissingModelError

    try:
        return load(MODELS)
    except MissingModelError as error:
        pytest.skip(str(error))
