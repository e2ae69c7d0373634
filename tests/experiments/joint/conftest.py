"""Records of a joint sweep without running it: metrics that are a known sum of effects and luck."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from experiments.record import RecordWriter

REPORT = "experiments.joint.report.write_report"
WORTH = {"lru": 0.0, "hazard": 0.5, "random": -0.4, "sieve": 0.0}
"""What an evictor adds to the goodput of 10 req/s."""
Put = Callable[..., None]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write one record. `luck`: of the policy itself, beside the seed's requests; other fields override."""

    def put(evictor: str, seed: int, luck: float = 0.0, config: dict[str, Any] | None = None, **fields: Any) -> None:
        point = {"order": "fcfs", "victim": "last", "block_size": 16} | fields
        name = ",".join(f"{key}={value}" for key, value in {"evictor": evictor, "seed": seed, **fields}.items())
        record = RecordWriter(tmp_path / name, {"report": REPORT, "rate": 6.0, "seed": seed, **(config or {})})
        record.begin()
        record.add("environment.json", b'{"packages": {}, "git": null, "source_sha256": "a"}')
        traffic = Random(seed).gauss(0, 3)  # the same for all policies
        goodput = 10 + traffic + WORTH[evictor] + luck * Random(f"{evictor} {seed}").gauss(0, 1)
        record.commit(
            {
                "evictor": evictor,
                "seed": seed,
                "workload": "made_up",
                "workload_fingerprint": f"requests of {seed}",
                "pool": "10%",
                "gpu": "l4",
                "model": "smollm2",
                "failed": 0,
                "goodput": goodput,
                "ttft_p95": 20 - goodput,
                "token_hit_rate": 0.5 + WORTH[evictor] / 10,
                **point,
            }
        )

    return put


@pytest.fixture
def grid(put: Put, tmp_path: Path) -> Path:
    """Three policies, two orders, two block sizes, four seeds."""
    for evictor, order, size, seed in product(
        ("lru", "hazard", "sieve"), ("fcfs", "longest_prefix"), (16, 64), range(4)
    ):
        put(evictor, seed, luck=0.05 if evictor != "lru" else 0.0, order=order, block_size=size)
    return tmp_path
