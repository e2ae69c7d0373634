"""The cache as data frames agrees with the cache, and a replay's record holds its ledger."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import toy_lab
from support.conf import build, composed, options

from cache.access import Access
from cache.allocator.hash_chain import HashChain
from cache.extra_keys import ExtraKeys
from cache.hashing.builtin import BuiltinHash
from cache.ledger import Ledger
from cache.manager import CacheManager
from cache.reasons import REASONS
from cache.sequence import Sequence
from cache.tokens import PackedTokens
from experiments import frames
from experiments.replay import replay, replay_job
from experiments.workload.multi_turn import MultiTurn


@pytest.fixture
def cache() -> tuple[CacheManager, Ledger, Sequence]:
    """Eight blocks of two tokens: a freed prompt, another tenant's, and a live one that shares two blocks."""
    manager, ledger = CacheManager(HashChain(8, 2, BuiltinHash(), build("evictor", "lru"))), Ledger(2, full=True)
    manager.observe(ledger)
    for index, (prompt, tenant, keep) in enumerate(
        [(range(6), None, 0), (range(4), "t", 0), ([0, 1, 2, 3, 9], None, 1)]
    ):
        seq = Sequence(PackedTokens.of(prompt), Access(index, 10.0 * index), ExtraKeys(tenant=tenant))
        manager.allocate(seq)
        manager.promote_to_immutable(seq, seq.num_tokens)
        if not keep:
            manager.free(seq)
    return manager, ledger, seq


def test_blocks_tell_state_owners_keys_ages_and_parents(cache: tuple[CacheManager, Ledger, Sequence]) -> None:
    manager, ledger, live = cache
    frame = frames.blocks(manager, ledger, {"live": live})
    assert len(frame) == 8
    for row in frame.itertuples():
        assert row.state == manager.allocator.state(row.block)
        assert row.ref_count == manager.ref_count(row.block)
        assert row.owners == ("live" if row.block in live.block_table else "")
    assert frame.state.value_counts().to_dict() == {"idle": 3, "immutable": 2, "free": 2, "mutable": 1}
    shared = frame[frame.state == "immutable"].sort_values("depth")
    assert shared.depth.tolist() == [0, 1]
    assert shared.age.tolist() == [0, 0]
    assert shared.parent.tolist() == [pd.NA, live.block_table[0]]
    idle = frame[frame.state == "idle"]
    assert sorted(idle.key) == ["", "salt 't'", "salt 't'"]
    assert idle[idle.key != ""].age_seconds.tolist() == [10.0, 10.0]
    assert frame[frame.state.isin(["free", "mutable"])].prefix.isna().all()


def test_without_a_ledger_blocks_still_tell_state_and_owners(cache: tuple[CacheManager, Ledger, Sequence]) -> None:
    frame = frames.blocks(cache[0])
    assert list(frame.columns) == ["block", "state", "ref_count", "owners", "position"]
    assert set(frame.owners) == {"", "2"}


def test_an_infinite_pool_shows_the_blocks_it_has_used() -> None:
    manager = CacheManager(HashChain(inf, 2, BuiltinHash(), build("evictor", "lru")))
    manager.allocate(Sequence(PackedTokens.of(range(5)), Access(0)))
    assert len(frames.blocks(manager)) == 3


def test_sequences_and_the_tree_of_prefixes(cache: tuple[CacheManager, Ledger, Sequence]) -> None:
    manager, ledger, live = cache
    (row,) = frames.sequences(manager).to_dict("records")
    assert (row["num_hit_blocks"], row["block_table"], row["num_tokens"]) == (2, live.block_table, 5)
    tree = frames.prefixes(ledger)
    assert tree.blocks.sum() == 5
    assert tree.resident.sum() == 5
    (trunk,) = tree[tree.children == 1].to_dict("records")
    (branch,) = tree[tree.parent.notna()].to_dict("records")
    assert (trunk["blocks"], trunk["last_request"], branch["parent"], branch["depth"]) == (2, 2, trunk["run"], 2)


def observed(full: bool) -> tuple[Ledger, dict[str, Any]]:
    ledger = Ledger(16, full)
    manager = CacheManager(HashChain(150, 16, BuiltinHash(), build("evictor", "lru")))
    return ledger, replay(MultiTurn(num_sessions=20, turns=5, system_tokens=64), manager, observer=ledger)


def test_reasons_sum_to_looked_up_blocks_and_what_was_evicted_is_the_distance_to_the_ceiling() -> None:
    ledger, metrics = observed(full=True)
    reasons = frames.reasons(ledger).set_index("reason").blocks
    assert reasons.sum() == metrics["full_blocks"] == len(frames.lookups(ledger))
    assert reasons["hit"] == metrics["hit_blocks"]
    assert reasons["evicted"] == metrics["ceiling_hit_blocks"] - metrics["hit_blocks"] > 0
    assert set(reasons.index) == set(REASONS)


def test_the_ledger_changes_no_number_of_a_replay() -> None:
    plain, other = (replay_numbers(option) for option in ("none", "counts"))
    assert plain == other == replay_numbers("full")


def replay_numbers(ledger: str) -> dict[str, Any]:
    cfg = composed(f"ledger={ledger}", "workload=multi_turn", "workload.num_sessions=20", "num_blocks=300")
    metrics = replay_job(cfg, lambda row: None).metrics
    timed = ("seconds", "requests_per_second", "blocks_per_second")
    return {key: value for key, value in metrics.items() if key not in timed and not key.startswith("miss_")}


def test_ages_add_up_to_hits_evictions_and_misses() -> None:
    ledger, metrics = observed(full=False)
    for unit in ("requests", "seconds"):
        ages = frames.ages(ledger, unit)
        assert ages.hit.sum() == metrics["hit_blocks"]
        assert ages.evicted.sum() == metrics["evictions"]
        assert ages.missed.sum() == ledger.counts["evicted"]
        assert ages.age.is_monotonic_increasing
    middle = frames.lookups(observed(full=True)[0]).query("reason == 'hit'").age.median()
    requests = frames.ages(ledger)
    reached = requests.age[requests.hit.cumsum() >= metrics["hit_blocks"] / 2].iloc[0]
    assert reached <= middle < reached * 2**0.25 * 1.0001


def test_every_block_is_only_shown_where_it_was_kept() -> None:
    with pytest.raises(ValueError, match="ledger=full"):
        frames.lookups(observed(full=False)[0])


def test_an_empty_ledger_has_empty_frames() -> None:
    ledger = Ledger(4, full=True)
    assert frames.reasons(ledger).blocks.sum() == 0
    assert frames.ages(ledger).empty
    assert frames.lookups(ledger).empty
    assert frames.prefixes(ledger).empty


@pytest.mark.parametrize("option", options("ledger"))
def test_every_ledger_option_runs(option: str) -> None:
    assert replay_numbers(option)["hit_blocks"] > 0


def test_one_command_records_every_block_as_parquet_and_as_a_wandb_table(tmp_path: Path) -> None:
    overrides = ["ledger=full", "workload=multi_turn", "workload.num_sessions=5", f"hydra.run.dir={tmp_path}/run"]
    code, out, err = toy_lab.run_module("experiments.replay", *overrides)
    assert code == 0, err
    metrics, folder = toy_lab.last_json(out), tmp_path / "run"
    rows = pd.read_parquet(folder / "ledger.parquet")
    assert len(rows) == metrics["full_blocks"]
    assert (rows.reason == "evicted").sum() == metrics["miss_evicted"]
    assert {"reasons.parquet", "ages.parquet", "ages_seconds.parquet", "ledger.png"} <= {
        p.name for p in folder.iterdir()
    }
    tables = {path.name.split("_")[0] for path in (folder / "wandb").rglob("*.table.json")}
    assert {"ledger", "reasons", "ages"} <= tables
