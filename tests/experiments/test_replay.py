"""Instant replay keeps its books exactly as the accounting rules say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conf import build, options
from support.replays import drawn_prompts, replayed

from cache.allocator.hash_chain import HashChain
from cache.allocator.naive import Naive
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.tokens import PackedTokens
from experiments.ceiling import footprint
from experiments.errors import UserError
from experiments.pool import resolve_num_blocks
from experiments.replay import replay
from experiments.workload.base import Request, Workload
from experiments.workload.mooncake import Mooncake


class Prompts(Workload):
    """A workload from a list."""

    def __init__(self, prompts: Any, **options: Any) -> None:
        super().__init__(**options)
        self.prompts = [tuple(prompt) for prompt in prompts]

    def requests(self) -> Iterator[Request]:
        for i, prompt in enumerate(self.prompts):
            yield Request(PackedTokens.of(prompt), arrival=float(i))

    def fingerprint(self) -> str:
        return str(hash(tuple(self.prompts)))


def manager(num_blocks: float, block_size: int = 4, evictor: str = "lru", **options: Any) -> CacheManager:
    return CacheManager(HashChain(num_blocks, block_size, BuiltinHash(), build("evictor", evictor), **options))


def test_every_number_of_a_small_replay_is_what_it_is_by_hand() -> None:
    prompts = [range(10), range(10), range(8), [9] * 3, range(100)]
    metrics = replay(Prompts(prompts), manager(5))
    seconds = metrics["seconds"]
    assert metrics == {
        "requests": 5,
        "refused": 1,
        "prompt_tokens": 10 + 10 + 8 + 3,
        "full_blocks": 2 + 2 + 2 + 0,
        "hit_blocks": 0 + 2 + 1 + 0,
        "hit_tokens": 12,
        "block_hit_rate": 3 / 6,
        "token_hit_rate": 12 / 31,
        "request_hit_rate": 2 / 4,
        "recomputed_prefix_tokens_per_request": 0.0,
        "evictions": 0,
        "unreachable_blocks": 0,
        "peak_blocks_in_use": 3,
        "ceiling_hit_blocks": 3,
        "ceiling_block_hit_rate": 3 / 6,
        "ceiling_token_hit_rate": 12 / 31,
        "seconds": seconds,
        "requests_per_second": 4 / seconds,
        "blocks_per_second": 6 / seconds,
    }


def test_a_wholly_resident_prompt_holds_one_extra_block_while_it_runs() -> None:
    assert replay(Prompts([range(8), range(8)]), manager(3))["hit_blocks"] == 1
    tight = replay(Prompts([range(8), range(8)]), manager(2))
    assert (tight["hit_blocks"], tight["evictions"]) == (1, 1), "its own last block had to make room"


def test_tokens_an_infinite_cache_would_have_hit_are_counted_as_recomputed() -> None:
    metrics = replay(Prompts([range(8), range(50, 62), range(9)]), manager(3))
    assert metrics["hit_blocks"] == 0
    assert metrics["ceiling_hit_blocks"] == 2
    assert metrics["recomputed_prefix_tokens_per_request"] == 8 / 3


def test_without_sharing_nothing_hits() -> None:
    metrics = replay(Prompts([range(8), range(8)]), CacheManager(Naive(4, 4)))
    assert (metrics["hit_blocks"], metrics["ceiling_hit_blocks"], metrics["peak_blocks_in_use"]) == (0, 1, 2)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), block_size=st.integers(1, 5))
def test_an_infinite_pool_reaches_the_ceiling_and_no_pool_passes_it(seed: int, block_size: int) -> None:
    workload = Prompts(drawn_prompts(seed))
    unbounded = replay(workload, manager(inf, block_size))
    assert unbounded["hit_blocks"] == unbounded["ceiling_hit_blocks"]
    small = replay(workload, manager(30, block_size))
    assert small["hit_blocks"] <= small["ceiling_hit_blocks"] == unbounded["ceiling_hit_blocks"]


@pytest.mark.parametrize("name", options("evictor"))
def test_replay_counts_what_a_plain_loop_over_the_cache_counts(name: str) -> None:
    prompts = drawn_prompts(11, count=120, longest=40)
    hits, victims = replayed(prompts, 2, 7, build("evictor", name))
    metrics = replay(Prompts(prompts), manager(7, 2, name))
    assert metrics["hit_blocks"] == sum(h or 0 for h in hits)
    assert metrics["evictions"] == len(victims)
    assert metrics["refused"] == hits.count(None) > 0


def test_blocks_behind_an_evicted_parent_are_counted() -> None:
    prompts = [tuple(range(i, i + 12)) for i in range(0, 400, 7)] * 2
    assert replay(Prompts(prompts), manager(10, 2, "random", leaf_only=False))["unreachable_blocks"] > 0
    assert replay(Prompts(prompts), manager(10, 2, "random"))["unreachable_blocks"] == 0


def test_the_time_series_is_sampled_and_ends_near_the_metrics() -> None:
    rows: list[dict[str, Any]] = []
    workload = Prompts(drawn_prompts(5, count=3000))
    metrics = replay(workload, manager(20, 2), rows.append)
    assert 150 < len(rows) < 400
    assert rows[0]["request"] == 0
    assert rows[-1]["evictions"] <= metrics["evictions"]
    assert abs(rows[-1]["hit_rate"] - metrics["token_hit_rate"]) < 0.01
    assert all(r["used_blocks"] + r["cached_blocks"] + r["free_blocks"] == 20 for r in rows)
    assert all(r["age_at_hit"] is None or r["age_at_hit"] >= 1 for r in rows)
    assert [r["request"] for r in rows] == sorted({r["request"] for r in rows})


def test_limit_and_time_scale_shape_the_stream() -> None:
    workload = Prompts([range(4), range(4), range(4)], limit=2, time_scale=0.5)
    assert [request.arrival for request in workload] == [0.0, 0.5]
    assert replay(workload, manager(4))["requests"] == 2


def test_an_empty_workload_and_a_pool_smaller_than_any_request_are_explained() -> None:
    with pytest.raises(UserError, match="no requests"):
        replay(Prompts([]), manager(4))
    with pytest.raises(UserError, match="smallest of 2 requests needs 6 blocks"):
        replay(Prompts([range(40), range(22)]), manager(4))


def test_a_share_of_the_workload_is_the_same_memory_at_every_block_size() -> None:
    workload = Prompts([range(i, i + 160) for i in range(0, 16000, 160)])
    assert footprint(workload) == 16000
    assert [resolve_num_blocks("10%", size, workload) for size in (16, 32, 100)] == [100, 50, 16]


@pytest.mark.parametrize("asked", ["0", "-3", "nan", "1.5", "0%", "-1%", "many", "%", None, "inf%", "1e308%", True])
def test_a_pool_of_no_size_is_refused(asked: Any) -> None:
    with pytest.raises(UserError, match="is no pool size"):
        resolve_num_blocks(asked, 16, Prompts([range(4)]))


def test_an_error_of_the_workload_is_not_blamed_on_the_pool() -> None:
    class Broken(Prompts):
        def requests(self) -> Iterator[Request]:
            raise ValueError("workload.x is wrong")

    with pytest.raises(ValueError, match=r"workload\.x"):
        resolve_num_blocks("5%", 16, Broken([]))


@pytest.mark.parametrize("limit", [-1, 1.5, "abc", True])
def test_a_limit_that_is_no_count_is_refused_by_name(limit: Any) -> None:
    with pytest.raises(ValueError, match=r"workload\.limit must be a"):
        Prompts([range(4)], limit=limit)


def test_the_time_series_ends_at_the_last_request() -> None:
    rows: list[dict[str, Any]] = []
    metrics = replay(Prompts(drawn_prompts(5, count=333)), manager(20, 2), rows.append)
    assert rows[-1]["evictions"] == metrics["evictions"]
    assert rows[-1]["hit_rate"] == metrics["token_hit_rate"]


@pytest.mark.parametrize("count", [1, 2, 120])
def test_every_row_of_the_time_series_sees_the_pool_while_a_request_holds_blocks(count: int) -> None:
    rows: list[dict[str, Any]] = []
    replay(Prompts([range(6)] * count), manager(20, 2), rows.append)
    assert {row["used_blocks"] for row in rows} <= {3, 4}, "its three blocks, or one more that is computed again"
    assert all(row["used_blocks"] + row["free_blocks"] == 20 for row in rows)


def test_a_pool_that_serves_nothing_is_explained_with_pools_that_work() -> None:
    with pytest.raises(UserError, match=r"num_blocks=30\), or leave it unbounded \(num_blocks=inf\)"):
        replay(Prompts([range(6)]), manager(2, 2))
    assert replay(Prompts([range(6)]), manager(30, 2))["refused"] == 0


@pytest.mark.parametrize(
    ("trace", "limit", "full_blocks", "hits"),
    [
        ("conversation", 400, 10949, {"lru": 399, "belady": 1144}),
        ("synthetic", 350, 8613, {"lru": 128, "fifo": 123, "lfu": 156, "belady": 513}),
    ],
)
def test_published_counts_of_real_traces(trace: str, limit: int, full_blocks: int, hits: dict[str, int]) -> None:
    path = Path(os.environ.get("PAGELAB_DATA", "data")) / f"mooncake_{trace}_trace.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in PAGELAB_DATA")
    for name, expected in hits.items():
        metrics = replay(Mooncake(path=str(path), limit=limit), manager(800, 512, name))
        assert (metrics["full_blocks"], metrics["hit_blocks"]) == (full_blocks, expected), name
