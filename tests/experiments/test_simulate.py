"""A timed simulation keeps its books: times by hand, sums that add up, the same numbers every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from support.conf import CONF, composed, options

from cache.allocator.hash_chain import HashChain
from cache.evictor.lru import Lru
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.tokens import PackedTokens
from experiments.errors import UserError
from experiments.record import read_record
from experiments.simulate import arrivals_of, simulate, simulate_job
from experiments.workload.base import Request, Workload
from scheduler.order.fcfs import Fcfs
from scheduler.preemption.recompute import Recompute
from scheduler.scheduler import Scheduler
from scheduler.simulated import made_up_tokens
from scheduler.step import Work
from scheduler.victim.last import Last

ROOT = Path(__file__).parents[2]
SLO = {"ttft": 5.0, "tpot": 1.0}
SMALL = ("workload=shared_prefix", "workload.num_requests=60", "workload.prefix_tokens=96", "workload.output_tokens=20")


class Fixed:
    """Every step takes two seconds, and one more for each ten tokens computed."""

    def seconds(self, work: Work) -> float:
        return 2.0 + work.num_tokens / 10


class Listed(Workload):
    def __init__(self, rows: list[tuple[float, int, int]]) -> None:
        super().__init__()
        self.rows = rows

    def requests(self) -> Iterator[Request]:
        for arrival, length, outputs in self.rows:
            yield Request(PackedTokens.of(range(length)), arrival, outputs)

    def fingerprint(self) -> str:
        return str(self.rows)


def scheduler(num_blocks: int = 100, **options: Any) -> Scheduler:
    manager = CacheManager(HashChain(num_blocks, 10, BuiltinHash(), Lru()))
    return Scheduler(manager, Fcfs(), Last(), Recompute(), foretell=made_up_tokens, **options)


def test_every_time_of_a_small_simulation_is_what_it_is_by_hand() -> None:
    workload = Listed([(100.0, 20, 3), (101.0, 40, 1), (200.0, 20, 0)])
    series: list[dict[str, Any]] = []
    metrics, rows = simulate(arrivals_of(workload), scheduler(), Fixed(), SLO, series.append)
    # 0 s: 20 tokens take 4 s. 4 s: one decode and 20 tokens of the second, whose other 20 are cached: 4.1 s.
    # 8.1 s: the last decode, 2.1 s. 100 s: the third, of which all but the last block is cached: 10 tokens, 3 s.
    times = [(row["queued"], row["ttft"], row["tpot"], row["e2e"]) for row in rows]
    expected = [(0.0, 4.0, (10.2 - 4.0) / 2, 10.2), (3.0, 7.1, None, 7.1), (0.0, 3.0, None, 3.0)]
    for found, wanted in zip(times, expected, strict=True):
        assert found == pytest.approx(wanted)
    assert [row["hit_tokens"] for row in rows] == [0, 20, 10]
    assert [row["output_tokens"] for row in rows] == [3, 1, 1]
    assert metrics["ttft_p50"] == pytest.approx(4.0)
    assert metrics["token_hit_rate"] == 30 / 80
    assert metrics["simulated_seconds"] == pytest.approx(103.0)
    assert (metrics["good_requests"], metrics["good_request_rate"]) == (1, 1 / 3), "3.1 s per token, 7.1 s, and good"
    assert metrics["goodput"] == pytest.approx(1 / 103.0)
    assert (metrics["steps"], metrics["failed"], metrics["preemptions"]) == (4, 0, 0)
    assert series[-1]["used_blocks"] == 0
    assert metrics["peak_running"] == 2, "the second runs beside the first, though it ends with its only step"


def test_requests_larger_than_the_pool_are_counted_and_the_others_served() -> None:
    metrics, rows = simulate(arrivals_of(Listed([(0, 500, 5), (1, 20, 5)])), scheduler(10), Fixed(), SLO)
    assert (metrics["requests"], metrics["failed"]) == (2, 1)
    assert "50 blocks" in rows[0]["error"]
    assert metrics["prompt_tokens"] == 20


@pytest.mark.parametrize(("rows", "message"), [([], "no requests"), ([(0, 500, 5)], "could be served; the first: the")])
def test_a_simulation_of_nothing_says_why(rows: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        simulate(arrivals_of(Listed(rows)), scheduler(10), Fixed(), SLO)


def test_a_rate_stretches_arrivals_and_nothing_else() -> None:
    requests = list(arrivals_of(Listed([(50.0, 5, 1), (51.0, 6, 1), (54.0, 7, 1)]), rate=0.25))
    assert [request.arrival for request in requests] == [0.0, 2.0, 8.0]
    assert [len(request.prompt) for request in requests] == [5, 6, 7]


@pytest.mark.parametrize("rate", [0, -1.0, float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(UserError, match="is no rate"):
        list(arrivals_of(Listed([(0, 5, 1), (1, 5, 1)]), rate))
    with pytest.raises(UserError, match="different times"):
        list(arrivals_of(Listed([(1, 5, 1), (1, 5, 1)]), 1.0))


@pytest.mark.parametrize("late", [1.7e18, -1.7e18, 1e308])
def test_arrivals_beyond_what_a_clock_can_tell_apart_are_refused(late: float) -> None:
    with pytest.raises(UserError, match=r"request 1 arrives .* years: arrivals are seconds"):
        list(arrivals_of(Listed([(0.0, 5, 1), (late, 5, 1)])))


def numbers(*overrides: str) -> dict[str, Any]:
    metrics = dict(simulate_job(composed(*SMALL, *overrides, config_name="simulate"), lambda row: None).metrics)
    for name in ("seconds", "requests_per_second"):
        metrics.pop(name)
    return metrics


def test_the_same_seed_gives_the_same_numbers_and_jumps_do_not_change_them() -> None:
    busy = ("gpu=l4", "num_blocks=90", "workload.request_rate=20")
    once = numbers(*busy)
    assert once == numbers(*busy)
    single = numbers(*busy, "jump=false")
    assert single.pop("scheduling_rounds") > once.pop("scheduling_rounds")
    assert single.pop("mean_blocks_in_use") == pytest.approx(once.pop("mean_blocks_in_use"))
    assert single == once
    assert numbers(*busy, "workload.seed=1")["ttft_p50"] != once["ttft_p50"]


def test_prefix_caching_shortens_the_wait() -> None:
    # 96 of 224 tokens are shared: without sharing more is computed.
    shared, alone = numbers("gpu=l4"), numbers("gpu=l4", "allocator=naive")
    assert shared["token_hit_rate"] > 0.2
    assert alone["token_hit_rate"] == 0
    assert shared["ttft_mean"] < alone["ttft_mean"]


SERVED = ("folder", "tiny")  # models with weights, but no shape
CHOICES = [
    (g, o) for g in ("order", "victim", "preemption", "scheduler", "model") for o in options(g) if o not in SERVED
]


@pytest.mark.parametrize(("group", "option"), CHOICES)
def test_every_option_serves_a_crowded_workload(group: str, option: str) -> None:
    metrics = numbers("gpu=h200", "num_blocks=60", "workload.request_rate=500", f"{group}={option}")
    assert metrics["failed"] == 0
    assert metrics["output_tokens"] == 60 * 20


def test_orders_victims_and_preemptions_differ_under_pressure() -> None:
    busy = ("num_blocks=60", "workload.request_rate=500")
    for group in ("order", "victim", "preemption"):
        results = [numbers(*busy, f"{group}={o}") for o in options(group) if o != "priority"]  # nobody is urgent here
        assert len({(r["ttft_mean"], r["e2e_mean"]) for r in results}) == len(results), group
        assert all(r["preemptions"] > 0 for r in results)


def test_no_hit_rate_exceeds_that_of_an_infinite_cache_and_a_large_quiet_pool_reaches_it() -> None:
    quiet = numbers("gpu=h200", "workload.request_rate=0.1")
    assert quiet["token_hit_rate"] == quiet["ceiling_token_hit_rate"] > 0.2
    busy = numbers("num_blocks=60", "workload.request_rate=500")
    assert busy["token_hit_rate"] < busy["ceiling_token_hit_rate"] == quiet["ceiling_token_hit_rate"]


def test_a_model_without_a_shape_cannot_be_simulated() -> None:
    with pytest.raises(UserError, match="no shape"):
        numbers("model=folder", "model.weights.folder=somewhere")


def test_a_policy_that_needs_the_future_is_refused() -> None:
    with pytest.raises(UserError, match="timed run"):
        numbers("evictor=belady")


def test_every_yaml_of_the_engine_builds_the_object_it_names() -> None:
    for group in ("order", "victim", "preemption", "gpu"):
        for option in options(group):
            cfg = composed(f"{group}={option}", config_name="simulate")
            assert type(instantiate(cfg[group])).__module__ == cfg[group]._target_.rpartition(".")[0]
    assert (CONF / "scheduler" / "continuous.yaml").exists()


def cli(tmp_path: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "experiments.simulate",
        *overrides,
        "tracker=jsonl",
        f"hydra.run.dir={tmp_path}/run",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_ends_with_its_json_line_and_leaves_a_record_with_every_request(tmp_path: Path) -> None:
    import pandas as pd

    done = cli(tmp_path, *SMALL, "gpu=l4", "model=smollm2", "sample_every=1")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout.splitlines()[-1])
    record = read_record(tmp_path / "run")
    assert record.metrics == metrics
    assert (metrics["gpu"], metrics["model"], metrics["requests"]) == ("l4", "smollm2", 60)
    table = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    assert len(table) == 60
    assert table["hit_tokens"].sum() == metrics["hit_tokens"]
    series = pd.read_parquet(tmp_path / "run" / "series.parquet")
    assert (series["used_blocks"] + series["cached_blocks"] + series["free_blocks"]).eq(metrics["num_blocks"]).all()
    assert (tmp_path / "run" / "serving.png").stat().st_size > 10_000


def test_a_model_too_large_for_the_gpu_ends_with_a_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = cli(tmp_path, *SMALL, "gpu=l4", "model=qwen3-32b")
    assert done.returncode == 2
    assert "qwen3-32b has 65.5 GB of weights; 1 × l4 leave 21.6 GB" in done.stderr
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_a_timeline_covers_every_request_from_arrival_to_end_without_a_gap() -> None:
    from experiments.timeline import Timeline
    from scheduler.clock import SimulatedClock
    from scheduler.loop import StepLoop
    from scheduler.simulated import SimulatedExecutor

    for limits in ({}, {"max_num_seqs": 3, "max_num_batched_tokens": 16}):
        crowded, clock = scheduler(14, **limits), SimulatedClock()
        timeline = Timeline(crowded)
        workload = Listed([(0.7 * i, 20 + i % 3, 40) for i in range(12)])
        loop = StepLoop(crowded, SimulatedExecutor(Fixed(), clock), clock, arrivals_of(workload), timeline.watch)
        finished = list(loop.run())
        assert {interval.state for interval in timeline.intervals} >= {"waiting", "decoding"}
        for request in finished:
            own = [interval for interval in timeline.intervals if interval.request == request.index]
            assert own[0].start == request.arrival
            assert own[-1].end == request.finished_at
            assert all(one.end == other.start for one, other in pairwise(own))
            assert all(one.state != other.state for one, other in pairwise(own))
            lost = [interval for interval in own if interval.state == "preempted"]
            assert len(lost) == request.preemptions
        assert all(sum(list(level.values())[1:]) == 14 for level in timeline.levels)
