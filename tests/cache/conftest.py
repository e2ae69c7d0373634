"""Tests that ask for `sharing` or `manager` run once per allocator of conf/allocator that shares prefixes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.conf import SHARING, sharing_allocator

from cache.allocator.base import Allocator
from cache.manager import CacheManager


@pytest.fixture(params=SHARING)
def sharing(request: pytest.FixtureRequest) -> Callable[..., Allocator]:
    """`sharing(num_blocks, block_size, evictor=…, hasher=…)`: an allocator that shares prefixes."""

    def make(num_blocks: float, block_size: int, **parts: object) -> Allocator:
        return sharing_allocator(request.param, num_blocks, block_size, **parts)

    return make


@pytest.fixture
def manager(sharing: Callable[..., Allocator]) -> Callable[..., CacheManager]:
    """A manager over one of them."""

    def make(num_blocks: float = 8, block_size: int = 4, **options: object) -> CacheManager:
        return CacheManager(sharing(num_blocks, block_size), **options)  # type: ignore[arg-type]

    return make
