"""Served and simulated, `allocator=radix` decides as `allocator=hash_chain` does; the ledger explains both alike."""

from __future__ import annotations

from typing import Any

import pytest
from support.conf import composed

from cache.reasons import HIT, REASONS
from experiments.generate import generate_job
from experiments.simulate import simulate_job

TIMING = ("seconds", "requests_per_second", "_ms_", "tokens_per_second")
MISSES = [f"miss_{reason}" for reason in REASONS if reason != HIT]
CROWDED = ("num_blocks=70", "workload.request_rate=300", "gpu=l4")
PREFIXED = ("workload=shared_prefix", "workload.num_requests=80", "workload.prefix_tokens=90")
ZIPF = ("workload=zipf_system_prompts", "max_requests=80", "num_blocks=900", "gpu=l4", "rate=200")


def counted(metrics: Any) -> dict[str, Any]:
    return {key: value for key, value in metrics.items() if not any(part in key for part in TIMING)}


def simulated(*overrides: str) -> Any:
    return simulate_job(composed(*overrides, config_name="simulate"), lambda row: None)


@pytest.mark.parametrize(
    "overrides",
    [
        (*PREFIXED, *CROWDED),
        (*PREFIXED, *CROWDED, "preemption=swap", "order=longest_prefix"),
        (*PREFIXED, *CROWDED, "evictor=lfu", "victim=cheapest_recompute", "block_size=24"),
        (*ZIPF, "evictor=s3fifo"),
        (*ZIPF, "scheduler.max_num_batched_tokens=512", "scheduler.max_num_seqs=32"),
    ],
    ids=lambda overrides: " ".join(overrides[3:]),
)
def test_a_simulation_is_the_same_request_by_request_over_either_allocator(overrides: tuple[str, ...]) -> None:
    radix, chain = (simulated(*overrides, f"allocator={name}") for name in ("radix", "hash_chain"))
    assert counted(radix.metrics) == counted(chain.metrics)
    assert radix.tables["requests"] == chain.tables["requests"]
    assert radix.metrics["evictions"] > 0


def test_a_simulation_says_why_blocks_missed_in_sum_and_for_each_request() -> None:
    result = simulated(*PREFIXED, *CROWDED)
    metrics, rows = result.metrics, result.tables["requests"]
    assert metrics["preemptions"] > 0
    size = metrics["block_size"]
    for name in MISSES:
        assert metrics[name] == sum(row[name] for row in rows)
    for row in rows:
        assert sum(row[name] for name in MISSES) == row["prompt_tokens"] // size - row["hit_tokens"] // size
    assert {"reasons", "ages", "ages_seconds"} <= set(result.tables)
    silent = simulated(*PREFIXED, *CROWDED, "ledger=none")
    assert not [name for name in (*silent.metrics, *silent.tables["requests"][0]) if name.startswith("miss_")]
    assert counted(silent.metrics).items() <= metrics.items(), "who listens changes nothing"


def test_a_simulation_counts_what_is_copied_below_the_block_size_apart() -> None:
    few = ("workload=shared_prefix", "workload.num_requests=20", "workload.prefix_tokens=90", "workload.num_prefixes=1")
    whole, part = simulated(*few), simulated(*few, "allocator.partial_reuse=true")
    assert part.metrics["partial_hit_tokens"] > 0
    assert part.metrics["partial_hit_tokens"] == sum(row["partial_hit_tokens"] for row in part.tables["requests"])
    assert "partial_hit_tokens" not in whole.metrics
    assert part.metrics["hit_tokens"] == whole.metrics["hit_tokens"]


def served(*overrides: str) -> Any:
    cfg = composed(
        "model=tiny", "workload=shared_prefix", "workload.num_requests=8", "workload.num_prefixes=2",
        "workload.prefix_tokens=42", "workload.suffix_tokens=7", "workload.vocab_size=97", "sampling.max_tokens=9",
        "block_size=4", *overrides, config_name="generate",
    )  # fmt: skip
    return generate_job(cfg, lambda row: None)


@pytest.mark.parametrize("pool", ["num_blocks=200", "num_blocks=40"])
def test_text_is_the_same_over_either_allocator_with_the_same_hits_and_reasons(pool: str) -> None:
    radix, chain = (served(pool, f"allocator={name}") for name in ("radix", "hash_chain"))
    same = ("outputs_sha256", "hit_tokens", "preemptions", "recomputed_tokens", "peak_blocks_in_use", *MISSES)
    assert {key: radix.metrics[key] for key in same} == {key: chain.metrics[key] for key in same}
    assert radix.metrics["hit_tokens"] > 0
    assert (radix.metrics["preemptions"] > 0) == (pool == "num_blocks=40")


def test_text_is_the_same_where_part_of_a_block_is_copied() -> None:
    whole, part = served("num_blocks=200"), served("num_blocks=200", "allocator.partial_reuse=true")
    assert part.metrics["outputs_sha256"] == whole.metrics["outputs_sha256"]
    assert part.metrics["partial_hit_tokens"] == 6 * 2, "two tokens beyond ten blocks, for all but the first of each"
    assert part.metrics["hit_tokens"] == whole.metrics["hit_tokens"]


def test_without_prefix_caching_every_known_block_missed_because_it_was_not_kept() -> None:
    metrics = served("num_blocks=200", "prefix_caching=false").metrics
    assert metrics["miss_not_cached"] > 0
    assert metrics["miss_evicted"] == metrics["hit_tokens"] == 0
