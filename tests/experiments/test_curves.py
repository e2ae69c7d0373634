"""The curves against direct replays, and the experiment from its yaml to its record."""

from __future__ import annotations

import io
import os
from math import inf
from pathlib import Path
from typing import Any

import pandas
import pytest
from omegaconf import OmegaConf
from support import toy_lab
from support.conf import composed

from experiments.curves import Curves, Plan, curves_job, notes_of
from experiments.errors import UserError
from experiments.options import with_options
from experiments.record import parquet
from experiments.sampling import Sampling
from experiments.workload.base import Workload
from experiments.workload.coding_agent import CodingAgent
from experiments.workload.mooncake import Mooncake
from experiments.workload.multi_turn import MultiTurn


def curves(workload: Workload, block_size: int) -> Curves:
    return Curves(workload, block_size, composed(config_name="curves"))


def check_lru(workload: Workload, block_size: int, sizes: list[float]) -> None:
    made = curves(workload, block_size)
    exact, replayed = made.lru(sizes), made.whole("lru", sizes)
    assert [row | {"how": "replay"} for row in exact] == replayed


def test_the_exact_curve_is_that_of_a_replay_at_ten_sizes_refused_requests_included() -> None:
    workload = MultiTurn(num_sessions=30, turns=6, system_tokens=64)
    sizes = [20.0, 40, 60, 80, 100, 150, 200, 400, 900, 3000]
    check_lru(workload, 16, sizes)
    assert curves(workload, 16).lru(sizes)[0]["refused"] > 0


@pytest.mark.parametrize(
    ("kind", "name", "limit", "block_size"),
    [(Mooncake, "mooncake_conversation_trace", 600, 128), (Mooncake, "mooncake_synthetic_trace", 400, 512),
     (CodingAgent, "kvct64", 120, 64)],
)  # fmt: skip
def test_the_exact_curve_is_that_of_a_replay_on_real_traces(kind: Any, name: str, limit: int, block_size: int) -> None:
    path = Path(os.environ.get("PAGELAB_DATA", "data")) / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in PAGELAB_DATA")
    check_lru(kind(path=str(path), limit=limit), block_size, [500.0, 300, 800, 2000, 6000])


def test_the_lru_line_passes_through_the_points() -> None:
    made = curves(MultiTurn(num_sessions=30, turns=6, system_tokens=64), 16)
    line = made.lru_line()
    some = line[:: len(line) // 6]
    for row, point in zip(some, made.lru([row["num_blocks"] for row in some]), strict=True):
        assert row["block_hit_rate"] == point["block_hit_rate"]
    assert line[-1]["block_hit_rate"] == point["ceiling_block_hit_rate"]


SIZES = [1000.0, 1400, 2000, 2800, 4000, 5600]


def chat() -> Curves:
    return curves(MultiTurn(1000, turns=5, system_tokens=64, user_tokens=64, reply_tokens=64, session_gap=2), 16)


@pytest.mark.parametrize("policy", ["hazard", "lfu"])
def test_a_sampled_curve_lies_within_its_stated_error_of_a_replay_also_where_a_policy_learns(policy: str) -> None:
    made = chat()
    rows = made.sampled(policy, SIZES, Sampling(made.requests, 16), Plan(tolerance=1.0))
    assert [row["how"] for row in rows] == ["replay", "sampled", "replay", "replay", "sampled", "replay"]
    for row, direct in zip(rows, made.whole(policy, SIZES), strict=True):
        assert abs(row["block_hit_rate"] - direct["block_hit_rate"]) <= row["error"]
        assert row["error"] == row["bias_error"] + row["spread_error"]
    assert max(abs(row["bias"]) for row in rows) > 0.01, "samples alone were off"


def test_a_policy_that_samples_mislead_about_is_replayed_whole() -> None:
    made = chat()
    sampling = Sampling(made.requests, 16)
    blind = made.sampled("lfu", SIZES, sampling, Plan(checks=0))
    assert [row["how"] for row in blind] == ["sampled"] * len(SIZES)
    rows = made.sampled("lfu", SIZES, sampling, Plan(tolerance=0.002))
    assert rows == made.whole("lfu", SIZES)
    assert any(abs(a["block_hit_rate"] - b["block_hit_rate"]) > a["error"] for a, b in zip(blind, rows, strict=True))
    assert notes_of(rows) == []
    assert notes_of(blind) == ["lfu: sample.checks=0, so the error tells of the spread alone, not of the samples' bias"]


def test_what_is_little_work_is_replayed_whole() -> None:
    made = chat()
    sampling, sizes = Sampling(made.requests, 16), SIZES[-1:]
    (whole,) = made.sampled("fifo", sizes, sampling, Plan(checks=0, above=made.full_blocks))
    (part,) = made.sampled("fifo", sizes, sampling, Plan(checks=0, above=made.full_blocks - 1))
    assert (whole["how"], part["how"]) == ("replay", "sampled")


def test_an_unbounded_pool_is_never_sampled() -> None:
    made = chat()
    assert made.sampled("fifo", [inf], Sampling(made.requests, 16), Plan()) == made.whole("fifo", [inf])


def test_samples_do_not_overlap_and_keep_branches_whole() -> None:
    requests = list(MultiTurn(num_sessions=400, turns=3, system_tokens=64))
    sampling = Sampling(requests, 16)
    samples = [sampling.pick(0.25, index) for index in range(4)]
    assert sum(map(len, samples)) == len(requests)
    sessions = [{request.session for request in sample} for sample in samples]
    assert not any(a & b for i, a in enumerate(sessions) for b in sessions[:i])
    assert sampling.trunk_blocks == 4
    assert sampling.pool(1000, 1.0) == 1000


def test_small_workloads_are_replayed_whole_instead_of_sampled() -> None:
    made = curves(MultiTurn(num_sessions=20, turns=4), 16)
    (row,) = made.sampled("fifo", [500], Sampling(made.requests, 16), Plan())
    assert (row["how"], row["error"]) == ("replay", 0.0)
    assert row == made.whole("fifo", [500])[0]


def test_no_policy_passes_the_optimum_or_the_ceiling() -> None:
    cfg = composed("workload=multi_turn", "workload.num_sessions=25", "policies=[belady,fifo]", config_name="curves")
    result = curves_job(cfg, lambda row: None)
    rows: Any = result.tables["curves"]
    best = {row["num_blocks"]: row["block_hit_rate"] for row in rows if row["policy"] == "belady"}
    assert best
    assert all(row["block_hit_rate"] <= best[row["num_blocks"]] <= row["ceiling_block_hit_rate"] for row in rows)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("sample.rate=2", r"sample\.rate=2 must lie in"),
        ("sample.tolerance=-1", r"sample\.tolerance=-1 must be"),
        ("sample.checks=0.5", r"sample\.checks=0.5 must be"),
        ("sample.above=-1", r"sample\.above=-1 must be"),
        ("sample.count=0", r"sample\.count=0 must be"),
        ("policies=[nope]", r"there is no evictor=nope\. The choices are"),
        ("num_blocks=[1]", "the smallest request, which needs"),
        ("workload.limit=0", "has no requests"),
        ("block_size=0", "block_size=0 is no block size"),
    ],
)
def test_what_cannot_be_drawn_is_explained(override: str, words: str) -> None:
    cfg = composed("workload=multi_turn", "workload.num_sessions=5", override, config_name="curves")
    with pytest.raises(UserError, match=words):
        curves_job(cfg, lambda row: None)


def test_an_unbounded_pool_has_a_row_and_no_place_in_the_figure() -> None:
    small = ("workload=multi_turn", "workload.num_sessions=5", "policies=[fifo]")
    for pools, figures in (("[40%,inf]", ["curves"]), ("inf", [])):
        result = curves_job(composed(*small, f"num_blocks={pools}", config_name="curves"), lambda row: None)
        rows: Any = result.tables["curves"]
        assert rows[-1]["num_blocks"] == inf
        assert rows[-1]["block_hit_rate"] == rows[-1]["ceiling_block_hit_rate"]
        assert result.draw is not None
        assert list(result.draw([], {})) == figures
        frame = pandas.read_parquet(io.BytesIO(parquet(rows)))
        assert frame.num_blocks.iloc[-1] == inf or figures == []


def test_pools_that_refuse_requests_are_named_since_their_rates_are_over_others() -> None:
    made = curves(MultiTurn(num_sessions=30, turns=6, system_tokens=64), 16)
    rows = made.lru([20, 30, 3000])
    some, fewer, none = (row["refused"] for row in rows)
    assert some > fewer > none == 0
    (note,) = notes_of([*rows, *made.whole("fifo", [20, 30])])
    assert note.startswith(f"pools of 20, 30 blocks refuse requests larger than they are ({some}, {fewer} of them)")
    assert notes_of(rows[2:]) == []


def test_pools_are_told_in_gigabytes_where_a_model_is_named() -> None:
    small = ("workload=multi_turn", "workload.num_sessions=5", "policies=[fifo]", "num_blocks=[20%,40%,inf]")
    plain = curves_job(composed(*small, config_name="curves"), lambda row: None)
    told = curves_job(composed(*small, "model=llama3-8b", config_name="curves"), lambda row: None)
    per_token = 2 * 32 * 8 * 128 * 2  # K and V, layers, heads, head_dim, bytes of bfloat16
    assert told.metrics["kv_bytes_per_token"] == per_token
    rows: Any = told.tables["curves"]
    assert [row["pool_gigabytes"] for row in rows] == [row["pool_tokens"] * per_token / 1e9 for row in rows]
    blocks = told.metrics["blocks_to_reach_the_ceiling"]
    assert told.metrics["gigabytes_to_reach_the_ceiling"] == blocks * told.metrics["block_size"] * per_token / 1e9
    assert not any("gigabytes" in key for key in [*plain.metrics, *plain.tables["curves"][0]])  # type: ignore[index]


def test_a_model_without_a_shape_has_no_bytes_to_count() -> None:
    cfg = composed("workload=multi_turn", "model=folder", "model.weights.folder=nowhere", config_name="curves")
    with pytest.raises(UserError, match="no shape to count bytes of"):
        curves_job(cfg, lambda row: None)


def test_how_points_were_sampled_is_told_only_where_some_were() -> None:
    small = ("workload=multi_turn", "workload.num_sessions=40", "policies=[fifo]", "num_blocks=[40%]")
    exact = curves_job(composed(*small, config_name="curves"), lambda row: None).metrics
    drawn = curves_job(composed(*small, "sample.above=0", "sample.tolerance=1", config_name="curves"), lambda row: None)
    keys = ("sample_rate", "samples", "largest_error", "largest_bias", "largest_bias_error", "largest_spread_error")
    assert exact["sampled_points"] == 0
    assert not set(keys) & set(exact)
    if drawn.metrics["sampled_points"]:
        assert set(keys) <= set(drawn.metrics)


def test_options_take_the_place_of_the_chosen_ones() -> None:
    cfg = composed(config_name="curves")
    made = with_options(cfg, {"num_blocks": 7}, evictor="fifo")
    assert OmegaConf.to_container(made.allocator, resolve=True)["evictor"]["_target_"].endswith("Fifo")
    assert made.allocator.num_blocks == 7
    assert cfg.allocator.evictor._target_.endswith("Lru")


def test_one_command_leaves_a_record_with_tables_and_a_plot(tmp_path: Path) -> None:
    overrides = ["workload=multi_turn", "workload.num_sessions=20", "tracker=jsonl", f"hydra.run.dir={tmp_path}/run"]
    code, out, err = toy_lab.run_module("experiments.curves", *overrides)
    assert code == 0, err
    metrics = toy_lab.last_json(out)
    assert metrics["evictor"] == "lru belady fifo lfu random"
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"curves.parquet", "lru_line.parquet", "curves.png", "curves.svg", "metrics.json"} <= found
    assert "infinite cache" in err
