"""The numerics ledger tells drift where there is some, and none where invariant mode promises none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.conf import CONF, composed
from support.tiny_models import FAMILIES

from cache.allocator.hash_chain import HashChain
from cache.evictor.lru import Lru
from cache.hashing.builtin import BuiltinHash
from cache.manager import CacheManager
from cache.store import KVStore
from experiments.errors import UserError
from experiments.numerics import compare, numerics_job, prompts_of
from experiments.plots.numerics import draw_numerics
from experiments.workload.base import Request
from model.backend.sdpa import SdpaBackend
from model.pretrained import tiny
from model.runner import ModelRunner


def ledger(**told: Any) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    decoder = tiny(**(FAMILIES["llama"] | told)).decoder
    store = KVStore(48, 8, 3, 2, 16, poison=True)
    manager = CacheManager(HashChain(48, 8, BuiltinHash(), Lru()))
    runners = {
        mode: ModelRunner(decoder, store, SdpaBackend(), invariant=mode == "invariant")
        for mode in ("fast", "invariant")
    }
    g = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 97, (50 + 3 * i,), generator=g).tolist() for i in range(3)]
    found = compare(manager, store, runners, prompts, 6, 7)
    manager.check_integrity()
    store.check_guard()
    assert manager.allocator.num_in_use == 0
    return found


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    """As in tests/model: workers side by side would wait for one another at every barrier."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def found() -> Any:
    return ledger(intermediate_size=1536)


def test_invariant_mode_shows_no_difference_at_all(found: Any) -> None:
    metrics, table, steps = found
    assert metrics["invariant_is_bitwise"]
    exact = [row for row in table if row["mode"] == "invariant"]
    assert [row["treatment"] for row in exact] == ["cold", "warm", "chunked", "batched"]
    assert all(row["kv_equal"] and row["logits_equal"] and row["kv_differing_share"] == 0 for row in exact)
    assert all(row["max_logit_difference"] == 0 for row in steps if row["mode"] == "invariant")


def test_fast_mode_drifts_a_little_and_the_ledger_sees_it(found: Any) -> None:
    metrics, table, _ = found
    chunked = next(row for row in table if (row["mode"], row["treatment"]) == ("fast", "chunked"))
    assert 0 < chunked["max_logit_difference"] < 1e-3
    assert not chunked["logits_equal"]
    assert 0 <= chunked["max_kl"] < 1e-6
    assert metrics["invariant_prefill_cost"] > 0


def test_warm_runs_really_hit(found: Any) -> None:
    _, table, _ = found
    hits = {row["treatment"]: row["hit_tokens"] for row in table if row["mode"] == "fast"}
    assert hits == {"cold": 0, "warm": 48 + 48 + 48, "chunked": 0, "batched": 0}


def test_it_is_drawn(found: Any) -> None:
    assert list(draw_numerics(found[2])) == ["numerics"]
    assert draw_numerics([]) == {}


def test_prompts_that_do_not_suit_are_told() -> None:
    from cache.tokens import PackedTokens

    requests = [Request(PackedTokens.of(range(10))), Request(PackedTokens.of(range(90, 100)))]
    assert prompts_of(requests, 2, 4, 100) == [[6, 7, 8, 9], [96, 97, 98, 99]]
    with pytest.raises(UserError, match="only 2 of num_prompts=3 prompts have prompt_tokens=4"):
        prompts_of(requests, 3, 4, 100)
    with pytest.raises(UserError, match="does not suit the model: token id 97 at index 1"):
        prompts_of(requests, 2, 4, 97)


@pytest.mark.parametrize(
    ("override", "match"),
    [("chunk=0", "chunk=0 must be a positive"), ("num_blocks=3", "num_blocks=3 cannot hold"),
     ("output_tokens=40000", "takes 32768"), ("block_size=0", "is no block size")],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(override: str, match: str) -> None:
    cfg = composed("model=tiny", "workload=shared_prefix", "workload.vocab_size=512", override, config_name="numerics")
    with pytest.raises(UserError, match=match):
        numerics_job(cfg, lambda row: None)


def test_a_run_leaves_a_record_and_ends_with_its_json_line(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "experiments.numerics", "model=tiny", "workload=shared_prefix", "workload.vocab_size=512",
        "tracker=none", "threads=1", "num_prompts=2", "prompt_tokens=40", "output_tokens=4",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=CONF.parent, timeout=120)
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout.splitlines()[-1])
    assert metrics["invariant_is_bitwise"] is True
    assert json.loads((tmp_path / "run" / "metrics.json").read_text()) == metrics
    assert {"treatments.parquet", "steps.parquet", "numerics.png"} <= {p.name for p in (tmp_path / "run").iterdir()}
