"""Bytes that a full cache takes per cached block, beyond the token ids themselves.

Measured by tracemalloc, which sees every Python object; only what stays after the last request counts. Knows nothing of
KV: the tensors are somebody else's.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

from cache.allocator.base import Allocator
from cache.manager import CacheManager
from cache.tokens import TOKEN_BYTES, PackedTokens
from experiments.bench.serving import BLOCK_SIZE, serve


def bytes_per_block(make: Callable[[], Allocator], prompts: list[bytes]) -> float:
    """After these prompts; the pool should be full by then."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        manager = CacheManager(make())
        serve(manager, prompts, PackedTokens)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / manager.allocator.num_idle - BLOCK_SIZE * TOKEN_BYTES
