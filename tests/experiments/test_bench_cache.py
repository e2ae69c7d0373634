"""The bench runs, says what it must, and its workload is served alike by both allocators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.bench.growth import resident
from experiments.bench.serving import NUM_BLOCKS, allocators, packed_prompts


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
