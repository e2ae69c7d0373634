"""One tokenizer and a cold cache for all tests of a process."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from hydra.utils import instantiate
from support.conf import composed

from cache.allocator.hash_chain import HashChain
from cache.evictor.lru import Lru
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.tokens import PackedTokens
from experiments.errors import UserError
from experiments.profile.fixes import Fix, Measured, Mender
from experiments.profile.text import Pieces
from experiments.tokenizer.smollm2 import SmolLM2
from experiments.workload.base import Request


@pytest.fixture(scope="session")
def tokenizer() -> SmolLM2:
    try:
        return SmolLM2()
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pieces(tokenizer: SmolLM2) -> Pieces:
    return Pieces(tokenizer)


@pytest.fixture(scope="session")
def profiled(pieces: Pieces) -> Callable[..., tuple[Measured, list[Fix]]]:
    """What prompts hit, and the fixes of prompts given as ids, with the detectors of the yaml."""
    detectors = [instantiate(node) for node in composed(config_name="token_profile").detectors]

    def profiled(prompts: list[list[int]], block_size: int = 16) -> tuple[Measured, list[Fix]]:
        requests = [Request(PackedTokens.of(ids)) for ids in prompts]
        mender = Mender(
            requests, pieces, detectors, lambda: CacheManager(HashChain(inf, block_size, BuiltinHash(), Lru()))
        )
        return mender.before, mender.fixes()

    return profiled
