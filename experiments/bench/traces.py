"""Whole public traces through instant replay, cut into small blocks: seconds of one core, file reading included.

Knows nothing of how figures are shown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from cache.manager import CacheManager
from experiments.bench.growth import ALLOCATORS, make_allocator
from experiments.bench.serving import CONF
from experiments.replay import replay


@dataclass(frozen=True, slots=True)
class Trace:
    """A workload yaml, and the pool it is replayed with."""

    workload: str
    block_size: int
    num_blocks: int


TRACES = (Trace("mooncake", 16, 320_000), Trace("coding_agent", 64, 100_000))


def replay_seconds(trace: Trace) -> dict[str, tuple[float, dict[str, Any]]] | None:
    """Per allocator, with LRU: processor seconds and metrics; None where the file is not in PAGELAB_DATA (`data`)."""
    data_dir = os.environ.get("PAGELAB_DATA", "data")
    node = {"data_dir": data_dir, "workload": OmegaConf.load(CONF / "workload" / f"{trace.workload}.yaml")}
    cfg = OmegaConf.create(node).workload
    if not Path(cfg.path).exists():
        return None
    results = {}
    for name in ALLOCATORS:
        start = process_time()
        manager = CacheManager(make_allocator(name, trace.num_blocks, trace.block_size))
        metrics = replay(instantiate(cfg), manager)
        results[name] = process_time() - start, metrics
    return results
