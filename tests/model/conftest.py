"""One SmolLM2 for all tests of a worker."""

from __future__ import annotations

from typing import Any

import pytest
from support.conf import MODELS


@pytest.fixture(scope="session")
def smollm2() -> Any:
    from model.pretrained import smollm2 as load
    from model.tokenizer import MissingModelError

    try:
        return load(MODELS)
    except MissingModelError as error:
        pytest.skip(str(error))
