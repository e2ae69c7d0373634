"""The bench runs, says what it must, and its workload is served alike by both allocators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.bench.growth import resident
from experiments.bench.policies import traffic
from experiments.bench.serving import NUM_BLOCKS, allocators, packed_prompts
from experiments.errors import UserError


def test_a_small_run_prints_its_tables_and_ends_in_one_json_object() -> None:
    command = [sys.executable, "-m", "experiments.bench_cache", "--requests", "60", "--only", "serving", "memory"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result) == {"serving", "memory", "requests", "environment"}
    assert all(rate > 0 for rate in result["serving"].values())
    assert "hash_chain" in done.stderr


def test_a_count_that_is_none_is_refused() -> None:
    command = [sys.executable, "-m", "experiments.bench_cache", "--requests", "0"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 2
    assert "must be 1 or more, got 0" in done.stderr


def test_both_allocators_hit_the_same_tokens_of_the_workload() -> None:
    figures = allocators(packed_prompts(300), repeats=1)
    assert figures["radix"].token_hit_rate == figures["hash_chain"].token_hit_rate > 0.6
    assert figures["naive"].token_hit_rate == 0
    assert NUM_BLOCKS == 20_000


@pytest.mark.parametrize("runs", [1, 4, 16])
def test_a_prompt_lies_in_as_many_runs_as_the_lookup_bench_says(runs: int) -> None:
    from cache.access import Access
    from cache.sequence import Sequence
    from cache.tokens import PackedTokens

    manager, data = resident("radix", 16 * 16, runs)
    seq = Sequence(PackedTokens(data), Access(99))
    manager.can_allocate(seq)
    assert len(manager.allocator.find(seq, 16).path) == runs


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.bench_cache", "--only", "policies", *arguments]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)


def test_policies_are_timed_on_the_workload_and_pool_that_are_asked_for() -> None:
    done = bench("--workload", "few_shot", "--requests", "40", "--num-blocks", "20%", "--policies", "belady", "arc",
                 "--block-size", "32", "--allocators", "radix")  # fmt: skip
    figures = json.loads(done.stdout.splitlines()[-1])["policies"]
    assert set(figures) == {"arc on radix, x lru", "belady on radix, x lru", "lru on radix, x lru"}
    assert figures["lru on radix, x lru"] == 1
    assert "workload=few_shot, 40 requests, block size 32" in done.stderr


@pytest.mark.parametrize(
    ("workload", "num_blocks", "told"),
    [
        ("none_such", "100", "--workload none_such is no file of conf/workload"),
        ("few_shot", "many", "num_blocks=many is no pool size"),
        ("few_shot", "1", "no request of --workload few_shot fits --num-blocks 1"),
    ],
)
def test_traffic_that_cannot_be_is_explained_in_a_sentence(workload: str, num_blocks: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        traffic(workload, 16, num_blocks, limit=3)
