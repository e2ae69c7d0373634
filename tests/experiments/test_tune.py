"""Tuning on the first part of a workload: what chooses never sees the second, and the record says what it was worth."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support import toy_lab
from support.conf import composed

from cache.tokens import PackedTokens
from experiments.errors import UserError
from experiments.job import Result
from experiments.tune import Tuning, combinations, split_at, tune_job
from experiments.workload.base import Request
from experiments.workload.given import Given
from experiments.workload.multi_turn import MultiTurn

CHAT = ["workload=multi_turn", "workload.num_sessions=30", "workload.turns=5", "num_blocks=[300,600]"]


def tuned(*overrides: str) -> Result:
    return tune_job(composed(*CHAT, *overrides, config_name="tune"), lambda row: None)


def tuning(requests: list[Request], *overrides: str) -> Tuning:
    like = MultiTurn(num_sessions=1)
    return Tuning(requests, like, composed("evictor=lfu", *CHAT, *overrides, config_name="tune"))


def test_the_best_of_the_first_part_is_chosen_and_its_worth_on_the_rest_reported() -> None:
    result = tuned("evictor=s3fifo", "grid={small: [0.05, 0.1, 0.5, 0.9]}")
    rows: Any = result.tables["tuning"]
    chosen = max(rows, key=lambda row: row["tuned_gain"])
    assert len(rows) == result.metrics["combinations"] == 4
    assert [row["is_chosen"] for row in rows] == [row is chosen for row in rows]
    assert [row["small"] for row in rows if row["is_default"]] == [0.1]
    assert result.metrics["chosen"] == f"small={chosen['small']}"
    assert result.metrics["held_out_gain"] == chosen["held_out_gain"]
    best = max(row["held_out_gain"] for row in rows)
    assert result.metrics["optimism"] == pytest.approx(best - chosen["held_out_gain"])
    assert best <= result.metrics["belady_held_out_gain"]
    assert len({row["tuned_gain"] for row in rows}) > 1, "the parameter must matter"


def test_another_second_part_changes_no_choice() -> None:
    requests = list(MultiTurn(num_sessions=30, turns=5))
    border, draw = split_at(requests, 0.5), random.Random(1)
    noise = [
        Request(PackedTokens.of([draw.randrange(99) for _ in range(900)]), arrival=request.arrival)
        for request in requests[border:]
    ]
    one, other = (
        tuning(some, "num_blocks=[200]").row({"half_life": 20.0}) for some in (requests, requests[:border] + noise)
    )
    assert one["tuned_gain"] == other["tuned_gain"] != 0
    assert one["held_out_gain"] != other["held_out_gain"]


def test_both_parts_together_are_a_replay() -> None:
    from hydra.utils import instantiate

    from cache.manager import CacheManager
    from experiments.options import with_options
    from experiments.replay import replay

    requests = list(MultiTurn(num_sessions=30, turns=5))
    made = tuning(requests)
    for name, figures in made.references.items():
        for pool, (hits, full) in zip(made.pools, figures, strict=True):
            cfg = with_options(made.cfg, {"num_blocks": pool}, evictor=name)
            whole = replay(Given(requests, MultiTurn(num_sessions=1)), CacheManager(instantiate(cfg.allocator)))
            assert (sum(hits), sum(full)) == (whole["hit_blocks"], whole["full_blocks"])


def test_parts_are_cut_by_time_and_by_number_where_there_is_none() -> None:
    tokens = PackedTokens.of([1, 2, 3])
    assert split_at([Request(tokens, arrival=time) for time in (0.0, 1.0, 2.0, 9.0, 10.0)], 0.5) == 3
    assert split_at([Request(tokens) for _ in range(10)], 0.3) == 3


def test_the_own_values_of_the_policy_are_tried_first_where_the_grid_lacks_them() -> None:
    cfg = composed("evictor=w_tinylfu", "grid={window: [0.1, 0.2], protected: [0.5]}", config_name="tune")
    tried = combinations(cfg.evictor, cfg.grid)
    own = {"window": cfg.evictor.window, "protected": cfg.evictor.protected}
    assert tried == [own, {"window": 0.1, "protected": 0.5}, {"window": 0.2, "protected": 0.5}]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], r"grid must name parameters of Hazard .* half_life, often"),
        (["evictor=lru", "grid={often: [4]}"], r"grid\.often: Lru has no such parameter: its yaml has none"),
        (["grid={ofen: [4]}"], r"grid\.ofen: Hazard has no such parameter: its yaml has half_life, often"),
        (["grid={often: []}"], "a parameter without values"),
        (["grid={often: [4]}", "split=1"], "split=1 must lie between 0 and 1"),
        (["grid={often: [4]}", "split=0.0001", "workload.num_sessions=1", "workload.turns=1"], "leaves one part"),
        (["grid={often: [4]}", "num_blocks=[3]"], "num_blocks=3: a part has no request that fits"),
        (["grid={often: [4]}", "workload.limit=0"], "has no requests"),
        (["grid={often: [4]}", "block_size=0"], "block_size=0 is no block size"),
    ],
)
def test_what_cannot_be_tuned_is_explained(overrides: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        tuned(*overrides)


def test_one_command_leaves_a_record_with_a_table_and_a_plot(tmp_path: Path) -> None:
    overrides = [*CHAT, "grid={often: [4, 8]}", "tracker=jsonl", f"hydra.run.dir={tmp_path}/run"]
    code, out, err = toy_lab.run_module("experiments.tune", *overrides)
    assert code == 0, err
    assert toy_lab.last_json(out)["chosen"].startswith("often=")
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"tuning.parquet", "tuning.png", "tuning.svg", "metrics.json"} <= found
    assert "held out" in err


def test_a_value_that_the_policy_refuses_ends_with_its_words(tmp_path: Path) -> None:
    overrides = [*CHAT, "grid={often: [0]}", "tracker=none", f"hydra.run.dir={tmp_path}/run"]
    code, _, err = toy_lab.run_module("experiments.tune", *overrides)
    assert code == 2
    assert "often must be 1 or more, got 0" in err
