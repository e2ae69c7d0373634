"""The engine's bench: what it measures on a tiny model is there and adds up; its verdicts are what the figures say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.conf import composed
from support.engines import fake_engine
from support.tiny_models import FAMILIES

from experiments.bench.engine import Served, cost_of, cost_without_hits
from experiments.bench_engine import Goal, bench_job, show
from experiments.errors import UserError

SMALL = (
    "model=tiny", "prompt_tokens=80", "cached_tokens=64", "batch_size=2", "decode_steps=2", "rounds=1", "num_blocks=64",
    "zero_hits.prompt_tokens=24", "zero_hits.output_tokens=4", "threads=1", "tracker=none",
)  # fmt: skip


def run(*overrides: str) -> Any:
    return bench_job(composed(*SMALL, *overrides, config_name="bench_engine"), lambda row: None)


def test_a_model_that_transformers_cannot_read_is_measured_alone_and_judged_where_it_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    threads = torch.get_num_threads()
    result = run()
    assert torch.get_num_threads() == threads
    goals = {row["goal"]: row for row in result.tables["goals"]}
    assert goals["cold ttft to transformers"]["met"] is None
    assert goals["warm ttft to cold"]["value"] > 0
    assert result.metrics["goals_met"] + result.metrics["goals_missed"] == 4
    assert {row["contestant"] for row in result.tables["contestants"]} == {"pagelab"}
    goals_ = [Goal("a", None, "<=", 1.0, "1 s", ""), Goal("b", 0.02, "<", 0.01, "", "", "%")]
    show(goals_, dict(result.metrics), "transformers is not installed")
    told = capsys.readouterr().err
    assert "transformers is not installed" in told
    assert "not judged" in told
    assert "missed by 100%" in told


def test_a_folder_is_raced_against_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    told = {key: value for key, value in FAMILIES["llama"].items() if key not in ("architectures", "model_type")}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**told)).save_pretrained(tmp_path)
    result = run("model=folder", f"model.weights.folder={tmp_path}")
    assert [row["contestant"] for row in result.tables["contestants"]] == ["pagelab", "transformers"]
    assert result.metrics["transformers_cold_ttft_s"] > 0
    assert result.metrics["goals_met"] + result.metrics["goals_missed"] == 6
    assert result.metrics["transformers"].startswith("5.24")


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("", 0.10, "<=", 0.10, "", ""), "met"),
        (Goal("", 0.01, "<", 0.01, "", ""), "missed by 0%"),
        (Goal("", 1.05, ">=", 1.4, "", ""), "missed by 25%"),
        (Goal("", 1.4, ">=", 1.4, "", ""), "met"),
        (Goal("", None, ">=", 1.4, "", ""), "not judged"),
    ],
)
def test_a_goal_is_met_or_missed_by_a_share_of_it(goal: Goal, verdict: str) -> None:
    assert goal.verdict() == verdict


def test_a_warm_prompt_must_really_be_cached() -> None:
    served = Served(fake_engine())
    assert served.warm(list(range(20)), 16) > 0
    with pytest.raises(UserError, match="18 tokens of the prompt should be cached, 16 are"):
        served.warm(list(range(20)), 18)
    with pytest.raises(UserError, match="the allocator must share"):
        Served(fake_engine(caching=False)).warm(list(range(20)), 16)


def test_the_time_of_a_decode_step_is_that_of_steps_which_only_decode() -> None:
    engine = fake_engine()  # every step takes one second of its clock
    assert Served(engine).decode(list(range(20)), 3, 5) == 1.0


def bare(engine: Any) -> Any:
    engine.loop.executor = engine.loop.executor.executor
    return engine


def test_prompts_without_hits_cost_host_time_in_both_engines_and_leave_them_as_they_were() -> None:
    sharing, plain = bare(fake_engine(40, radix=True)), bare(fake_engine(40, caching=False))
    runner, sample = sharing.loop.executor.runner, sharing.loop.executor.sample
    costs = cost_without_hits(sharing, plain, 40, 3, 30, 6, 4)
    assert [(cost.hit_tokens, cost.output_tokens, cost.steps) for cost in costs] == [(0, 18, 6)] * 2
    assert all(cost.host > 0 for cost in costs)
    assert sharing.scheduler.manager.allocator.stats.evictions > 0, "the pool was full: evicting is part of the cost"
    assert (sharing.loop.executor.runner, sharing.loop.executor.sample) == (runner, sample)


def test_time_in_the_model_is_no_host_time() -> None:
    engine = bare(fake_engine())
    inner = engine.loop.executor.runner.run

    def busy(batch: Any) -> Any:
        np.linalg.svd(np.random.default_rng(0).random((160, 160)))
        return inner(batch)

    prompts = [[1, 2, 3], [4, 5, 6]]
    quiet = min(cost_of(engine, prompts, 4).host for _ in range(5))
    engine.loop.executor.runner.run = busy
    assert min(cost_of(engine, prompts, 4).host for _ in range(5)) < 3 * quiet


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("timer=sun",), "timer=sun is none of wall, processor"),
        (("timer=processor", "threads=2"), "needs threads=1"),
        (("threads=0",), "positive number of threads"),
        (("cached_tokens=63",), "63 tokens of the prompt should be cached"),
        (("allocator=naive",), "the allocator must share"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_sentence(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run(*overrides)
