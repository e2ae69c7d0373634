"""A sweep of layouts ends with a table, plots and a record; what does not compare is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.errors import UserError
from experiments.layout.report import label, refuse_mixtures, short_table, table
from experiments.record import StoredRecord, read_record

ROOT = Path(__file__).parents[3]
MEANS = {
    f"{name}_per_request": 1.0
    for name in (
        "prompt_tokens",
        "computed_tokens",
        "resent_tokens",
        "resent_tokens_computed",
        "recomputed_prefix_tokens",
    )
}


def record(folder: str, **metrics: Any) -> StoredRecord:
    told = {
        "script_fingerprint": "a", "model": "m", "gpu": "g", "rate": None, "pool_tokens": 1000, "block_size": 16,
        "ttft_p50": 0.2, "ttft_p95": 0.4, "token_hit_rate": 0.5, "failed": 0, "pad": False, "prefix_tokens": 512,
        "common_tokens": 512, **MEANS,
    }  # fmt: skip
    return StoredRecord(Path("sweep") / folder, {}, told | metrics, {})


def test_runs_over_other_talks_gpus_or_pools_are_refused() -> None:
    same = record("a")
    refuse_mixtures(Path("sweep"), [same, record("b", field="first"), record("c", pool_tokens=1010)])
    for wrong, message in (
        ({"script_fingerprint": "b"}, "different talks"),
        ({"gpu": "h"}, "different GPUs"),
        ({"rate": 2.0}, "different request rates"),
        ({"pool_tokens": 1016}, "pools of 1,000 to 1,016 tokens"),
    ):
        with pytest.raises(UserError, match=message):
            refuse_mixtures(Path("sweep"), [same, record("b", **wrong)])


def test_the_table_names_what_differs_and_holds_times_against_the_first_row() -> None:
    frame = table(
        [
            record("layout=2_b", layout="2_b", field="last", token_hit_rate=0.1, ttft_p50=0.1),
            record("layout=1_a_b", layout="1_a_b", field="first", token_hit_rate=0.9),
        ]
    )
    assert list(frame.label) == ["a b", "b"], "named layouts keep the order of their names"
    columns, rows = short_table(frame)
    assert columns[:2] == ["layout", "token hit rate"]
    assert rows[1][columns.index("TTFT p50") :][:2] == ["100 ms", "−50%"]
    swept = table([record("x", pad=True, prefix_tokens=528), record("y", token_hit_rate=0.2)])
    assert list(swept.label) == ["as it is", "filled to 528"], "by size"
    assert label({"common_tokens": 500, "block_size": 64}, ["common_tokens", "block_size"]) == (
        "common part 500 · block 64"
    )


def test_a_sweep_from_the_command_line_leaves_records_a_table_and_plots(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    command = [sys.executable, "-m", "experiments.prompt_layout", "-m", "layout=6_history_appended,1_as_it_grew"]
    command += ["workload.num_sessions=4", "turns=2", "tracker=jsonl", f"hydra.sweep.dir={tmp_path}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=170, check=False)
    if "are not installed" in done.stderr:
        pytest.skip("SmolLM2's tokenizer is not installed")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["finished"], summary["failed"]) == (2, 0)
    names = {Path(path).name for path in summary["report"]}
    assert names >= {"layouts.png", "hit_rate_by_turn.png", "report.parquet", "report.md"}
    assert "as it grew" in done.stderr
    assert "token hit rate" in done.stderr
    frame = pd.read_parquet(next(path for path in summary["report"] if path.endswith("parquet")))
    assert list(frame.layout) == ["1_as_it_grew", "6_history_appended"]
    stored = read_record(tmp_path / "layout=1_as_it_grew")
    assert stored.metrics["token_hit_rate"] == frame.token_hit_rate[0] < frame.token_hit_rate[1]
    assert len(pd.read_parquet(stored.folder / "turns.parquet")) == 2
