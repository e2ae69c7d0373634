"""Block sizes from common prefixes against replays of every one of them, and the join with kernel times."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import toy_lab
from support.conf import build, composed
from support.replays import drawn_prompts

from cache.allocator.hash_chain import HashChain
from cache.extra_keys import NO_EXTRA_KEYS, ExtraKeys
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.tokens import PackedTokens, TokenIds, TraceTokens
from experiments.block_size import block_size_job, finite_rows, size_rows
from experiments.common_prefix import CommonPrefixes
from experiments.errors import UserError
from experiments.kernel_times import read_kernel_times
from experiments.replay import replay
from experiments.workload.base import Request
from experiments.workload.given import Given
from experiments.workload.mooncake import Mooncake
from experiments.workload.multi_turn import MultiTurn

LIKE = MultiTurn()


def replayed(requests: list[Request], block_size: int, num_blocks: float = inf) -> dict[str, Any]:
    allocator = HashChain(num_blocks, block_size, BuiltinHash(), build("evictor", "lru"))
    return replay(Given(requests, LIKE), CacheManager(allocator))


def check(requests: list[Request], granularity: int, sizes: list[int]) -> None:
    rows = size_rows(CommonPrefixes(requests, granularity), sizes, granularity)
    for size, row in zip(sizes, rows, strict=True):
        metrics = replayed(requests, size)
        for key in ("full_blocks", "hit_blocks", "block_hit_rate", "token_hit_rate"):
            assert row[key] == metrics[key], (size, key)
        assert row["told_apart"] == (size >= granularity)


def requests_of(prompts: list[TokenIds], extras: list[ExtraKeys] | None = None) -> list[Request]:
    keys = extras or [NO_EXTRA_KEYS] * len(prompts)
    return [Request(tokens, extra_keys=key) for tokens, key in zip(prompts, keys, strict=True)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), keyed=st.booleans())
def test_every_block_size_hits_exactly_what_a_replay_with_an_infinite_pool_hits(seed: int, keyed: bool) -> None:
    prompts = [tokens for tokens in map(PackedTokens.of, drawn_prompts(seed, count=40, longest=200)) if len(tokens)]
    longer: list[TokenIds] = [PackedTokens(tokens.data * 5) for tokens in prompts]
    extras = [ExtraKeys(tenant=str(i % 3)) if keyed else NO_EXTRA_KEYS for i in range(len(longer))]
    check(requests_of(longer, extras), 1, [1, 2, 3, 5, 8, 13, 32, 64, 100])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), cut=st.integers(0, 7))
def test_block_traces_too_at_sizes_below_above_and_beside_their_own(seed: int, cut: int) -> None:
    unit = 8
    prompts: list[TokenIds] = [TraceTokens(p, len(p) * unit - cut, unit) for p in drawn_prompts(seed, 40)]
    check(requests_of(prompts), unit, [1, 2, 4, 5, 8, 12, 16, 24, 40])


def test_real_conversations_at_several_sizes() -> None:
    path = Path(os.environ.get("PAGELAB_DATA", "data")) / "mooncake_conversation_trace.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in PAGELAB_DATA")
    check(list(Mooncake(path=str(path), limit=400)), 512, [64, 500, 512, 1024])


def test_a_finite_pool_of_the_same_memory_is_lru_exactly_at_every_size() -> None:
    requests = list(MultiTurn(num_sessions=20, turns=5, system_tokens=64))
    rows = finite_rows(requests, LIKE, [4, 16, 48], "10%")
    assert len({row["num_blocks"] * row["block_size"] // 100 for row in rows}) == 1
    for row in rows:
        metrics = replayed(requests, row["block_size"], row["num_blocks"])
        assert (row["lru_hit_blocks"], row["refused"]) == (metrics["hit_blocks"], metrics["refused"])
        assert row["lru_token_hit_rate"] == metrics["token_hit_rate"]


def test_fragmentation_is_what_last_blocks_leave_unused() -> None:
    requests = requests_of([PackedTokens.of(range(5)), PackedTokens.of(range(8))])
    (row,) = size_rows(CommonPrefixes(requests, 1), [4], 1)
    assert row["fragmentation"] == 3 / 16
    assert row["lost_tokens_per_request"] == 1 / 2


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_kernel_times_are_read_and_the_fastest_row_of_a_size_counts(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"times.{suffix}"
    frame = pd.DataFrame({"block_size": [16, 16, 64], "time_us": [5.0, 4.0, 3.0], "variant": ["a", "b", "a"]})
    write = {"jsonl": lambda p: frame.to_json(p, orient="records", lines=True), "csv": frame.to_csv}
    write.get(suffix, frame.to_parquet)(path)
    assert read_kernel_times(str(path)) == {16: 4.0, 64: 3.0}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("size,us\n1,2\n", "has no column block_size, only size, us"),
        ("block_size,a_us,b_us\n1,2,3\n", "which column is the time"),
        ("block_size,us\n16,3\n32,-1\n", r"row 2: block_size=32.* must be a positive"),
        ("block_size,us\n1.5,3\n", "must be a positive whole number"),
        ("", "cannot be read as csv"),
    ],
)
def test_a_bad_table_of_kernel_times_is_told_with_its_place(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=words):
        read_kernel_times(str(path))


def test_the_best_size_weighs_what_must_be_computed_against_kernel_time(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("block_size,us\n1,50\n16,20\n64,30\n1024,10\n")
    few = ["workload=multi_turn", "workload.num_sessions=20", "sizes=[1,16,64,1024]", "num_blocks=null"]
    few += [f"kernel_times={path}"]

    def best(*overrides: str) -> dict[str, Any]:
        return block_size_job(composed(*few, *overrides, config_name="block_size"), lambda row: None).metrics

    assert best("prefill_us_per_token=1e6", "calls_per_request=1")["best_block_size"] == 1
    assert best("prefill_us_per_token=0.001", "calls_per_request=1000")["best_block_size"] == 1024
    assert best()["worth_considering"] == "1 16 1024"
    with pytest.raises(UserError, match="give both"):
        best("calls_per_request=1")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("sizes=0", "block_size=0 is no block size"),
        ("sizes=[16,a]", "block_size=a is no block size"),
        ("workload.limit=0", "has no requests"),
        ("num_blocks=-1", "is no pool size"),
        ("kernel_times=nowhere.csv", "there is no such file"),
        ("kernel_times=times.txt", r"give a \.jsonl"),
    ],
)
def test_what_cannot_be_computed_is_explained(override: str, words: str) -> None:
    cfg = composed("workload=multi_turn", "workload.num_sessions=2", override, config_name="block_size")
    with pytest.raises(UserError, match=words):
        block_size_job(cfg, lambda row: None)


def test_one_command_leaves_a_record_with_tables_and_a_plot(tmp_path: Path) -> None:
    times = tmp_path / "times.jsonl"
    times.write_text('{"block_size": 16, "us": 3}\n{"block_size": 32, "us": 2}\n')
    overrides = ["workload=multi_turn", "workload.num_sessions=10", "tracker=jsonl", f"kernel_times={times}"]
    code, out, err = toy_lab.run_module("experiments.block_size", *overrides, f"hydra.run.dir={tmp_path}/run")
    assert code == 0, err
    metrics = toy_lab.last_json(out)
    assert metrics["num_block_sizes"] == 1024
    table = pd.read_parquet(tmp_path / "run" / "block_sizes.parquet").set_index("block_size")
    computed = table.lru_token_hit_rate.dropna()
    assert len(computed) > 1
    assert {f"lru_token_hit_rate_{size}": rate for size, rate in computed.items()} == {
        key: value for key, value in metrics.items() if key.startswith("lru_token_hit_rate")
    }
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"block_sizes.parquet", "kernel_times.parquet", "block_size.png", "metrics.json"} <= found
    assert len(pd.read_parquet(tmp_path / "run" / "block_sizes.parquet")) == 1024


def test_a_sweep_of_it_ends_well_without_a_table_of_replays(tmp_path: Path) -> None:
    few = ["-m", "workload=multi_turn", "workload.num_sessions=2,3", "sizes=[16,32]", "num_blocks=null", "tracker=none"]
    code, out, err = toy_lab.run_module(
        "experiments.block_size", *few, "record.plots=false", f"hydra.sweep.dir={tmp_path}"
    )
    assert (code, toy_lab.last_json(out)["finished"]) == (0, 2), err
    assert "is no sweep of replays" in err
