"""`allocator=radix` gives exactly the numbers of `allocator=hash_chain`, row by row, on every kind of workload."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from support.conf import composed

from cache.manager import CacheManager
from experiments.replay import replay

DATA = Path(os.environ.get("PAGELAB_DATA", "data"))
TIMING = ("seconds", "requests_per_second", "blocks_per_second")


def numbers(workload: str, allocator: str, evictor: str, block_size: int, num_blocks: int, limit: int) -> Any:
    """Metrics and time series of the first `limit` requests."""
    cfg = composed(
        f"workload={workload}", f"allocator={allocator}", f"evictor={evictor}",
        f"block_size={block_size}", f"num_blocks={num_blocks}", f"workload.limit={limit}", f"data_dir={DATA}",
    )  # fmt: skip
    if "path" in cfg.workload and not Path(cfg.workload.path).exists():
        pytest.skip(f"{Path(cfg.workload.path).name} is not in PAGELAB_DATA")
    rows: list[Any] = []
    metrics = replay(instantiate(cfg.workload), CacheManager(instantiate(cfg.allocator)), rows.append)
    return {key: value for key, value in metrics.items() if key not in TIMING}, rows


@pytest.mark.parametrize(
    ("workload", "evictor", "block_size", "num_blocks", "limit"),
    [
        ("mooncake", "lru", 512, 800, 1500),
        ("mooncake", "belady", 512, 800, 1500),
        ("mooncake", "lfu", 64, 6000, 500),
        ("mooncake_synthetic", "fifo", 512, 800, 1500),
        ("mooncake_synthetic", "random", 1024, 300, 800),
        ("coding_agent", "lru", 64, 20_000, 300),
        ("coding_agent", "lfu", 96, 3000, 25),
        ("multi_turn", "lru", 16, 2000, 300),
        ("few_shot", "belady", 16, 500, 200),
        ("shared_prefix", "lfu", 7, 900, 200),
        ("zipf_system_prompts", "lru", 16, 1500, 200),
    ],
)
def test_both_give_the_same_numbers(workload: str, evictor: str, block_size: int, num_blocks: int, limit: int) -> None:
    shape = (evictor, block_size, num_blocks, limit)
    radix, chain = numbers(workload, "radix", *shape), numbers(workload, "hash_chain", *shape)
    assert radix == chain
    assert chain[0]["evictions"] > 0
