"""One SmolLM2 for all tests of a worker; one thread; Triton's interpreter where there is no GPU."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
import torch
from support.conf import MODELS

if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise pytest.UsageError("Triton was imported before tests/model could ask for its interpreter")
    os.environ["TRITON_INTERPRET"] = "1"


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
