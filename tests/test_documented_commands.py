"""Every command in the documentation can be run: all are parsed, and those of the guides are run, made small."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import ROOT, elsewhere, in_guides, parse, words, written_in_the_readme
from support.conf import MODELS

GUIDES, ELSEWHERE = in_guides(), elsewhere()

SMALL = {
    r"experiments\.replay": "workload.limit=40 tracker=jsonl record.plots=false",
    r"experiments\.replay.*sweep=": "evictor=lru,belady block_size=16 num_blocks=600 hydra/launcher=basic",
    r"experiments\.replay.*workload=mooncake.*sweep=|sweep=.*workload=mooncake": "block_size=512 num_blocks=400",
    r"experiments\.curves": "workload.limit=60 tracker=none block_size=64 policies=[belady,fifo] num_blocks=[20%,50%]",
    r"experiments\.curves.*workload=mooncake": "block_size=512",
    r"experiments\.tune": "workload.limit=60 tracker=none block_size=64 num_blocks=[20%]",
    r"experiments\.block_size": "workload.limit=60 tracker=none sizes=16 finite_sizes=[16]",
    r"experiments\.token_profile": "sample_tokens=2000",
    r"experiments\.generate": "model=tiny tracker=none sampling.max_tokens=2 max_requests=2",
    r"experiments\.generate.*(chat|prompts)=": "model=smollm2 invariant=false sampling.max_tokens=1",
    r"experiments\.generate.*workload=": "workload=shared_prefix workload.num_requests=2 workload.prefix_tokens=32 "
    "workload.vocab_size=512",
    r"experiments\.simulate": "tracker=none max_requests=20 num_blocks=1500 record.plots=false",
    r"experiments\.prompt_layout": "tracker=none workload.num_sessions=3 turns=2 common_tokens=128 "
    "hydra/launcher=basic layout=1_as_it_grew,6_history_appended",
    r"experiments\.numerics": "model=tiny workload=shared_prefix workload.vocab_size=512 num_prompts=1 "
    "prompt_tokens=48 output_tokens=2 chunk=16 tracker=none",
    r"experiments\.kernel_ablation": "tracker=none mode=compile block_size=16 batch=2 context=128 num_kv_heads=2",
    r"experiments\.kernel_ablation.*(sweep|-m)": "num_splits=1 tile_kv=32 num_warps=4",
    r"experiments\.kernel_ablation.*op=prefill": "batch=1 query_len=64",
    r"experiments\.kernel_ablation.*op=cascade": "shared_prefix=64",
    r"experiments\.ablation\.session": "--rehearse --only decode --seconds 120",
    r"experiments\.simulate.*sweep=joint": "seed=0,1 evictor=lru,lfu order=fcfs victim=last block_size=16 "
    "num_blocks=600 hydra/launcher=basic",
    r"experiments\.bench_engine": "model=tiny threads=1 rounds=1 prompt_tokens=80 cached_tokens=64 batch_size=2 "
    "decode_steps=2 num_blocks=64 zero_hits.prompt_tokens=24 zero_hits.output_tokens=4 tracker=none",
    r"experiments\.bench_cache": "--requests 200 --only memory",
    r"kernels\.aot": "--only scatter",
}
"""What is appended where a command matches, in this order; later values of a key win."""

ONLY_PARSED = {
    r"make (test|lint|notebooks)": "this is it, or a job of its own",
    r"pytest": "tests do not start tests",
    r"experiments\.notebooks": "tests/test_notebooks.py executes them",
    r"get_data \w": "downloads",
    r"model\.import_gguf": "tests/model/test_import_gguf.py does, once for all",
    r"launcher=(slurm|ray)": "tests/experiments/test_launchers.py does, on clusters made up or small",
}

FILES = {
    "prompts.jsonl": "".join(
        f'{{"text": "It is 12:0{i}. You are a helpful clerk. Why?", "timestamp": {i}}}\n' for i in range(6)
    ),
    "path/to/prompts.txt": "What is a block?\nWhat is a slot?\n",
    "path/to/chats.jsonl": '[{"role": "user", "content": "What is a block?"}]\n' * 2,
    "path/to/times.jsonl": '{"block_size": 16, "us": 50.0}\n{"block_size": 64, "us": 40.0}\n',
    "path/to/policy.py": written_in_the_readme("EvictLatest"),
    "events.jsonl": '[1.5, [["BlockStored", [11, 12], null, [5, 6, 7, 8], 2, null]]]\n',
}
"""What the commands expect to find where they run."""


@pytest.mark.parametrize("command", sorted({*GUIDES, *ELSEWHERE}), ids=lambda command: command[:90])
def test_the_command_names_what_there_is(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse(command, monkeypatch)


def _run_in_full() -> list[str]:
    return [c for c in GUIDES if not any(re.search(p, c) for p in ONLY_PARSED) and not re.search(r"make|report ", c)]


@pytest.mark.parametrize("command", _run_in_full(), ids=lambda command: command[:90])
def test_the_command_ends_well_with_a_line_of_json(command: str, desk: Path) -> None:
    result = run(desk, *small(command))
    assert result or "evictor.check" in command, "the check of a policy is for people: a table"


def test_what_make_sweep_runs_ends_in_a_folder_that_report_takes(desk: Path) -> None:
    dry = subprocess.run(["make", "-n", "sweep"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = re.findall(r"python (-m experiments\.replay .*)", dry)
    summary = run(desk, *small(f"python {command}"))
    assert (summary["jobs"], summary["finished"]) == (2, 2)
    for command in (c for c in GUIDES if "experiments.report " in c):
        folders = [word for word in words(command)[3:] if word.endswith(("runs", "stdlib_agent"))]
        for folder in folders:
            if not (desk / folder).exists():
                (desk / folder).parent.mkdir(exist_ok=True)
                (desk / folder).symlink_to(desk / "runs")
        assert run(desk, *words(command)[1:])["runs"] >= 2


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder like the one a reader works in."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def small(command: str) -> list[str]:
    """The command's arguments, and those that make it small. Skips where it needs a trace that is not here."""
    data = Path(os.environ.get("PAGELAB_DATA", ROOT / "data"))
    for workload in re.findall(r"workload=(\w+)", command):
        text = (ROOT / "conf" / "workload" / f"{workload}.yaml").read_text("utf-8")
        for name in re.findall(r"path: \$\{data_dir\}/(\S+)", text):
            if workload != "mine" and not (data / name).exists():
                pytest.skip(f"{name} is not in PAGELAB_DATA: parsed only")
            command = command.replace(f"path/to/{name}", str(data / name))
    more = " ".join(text for pattern, text in SMALL.items() if re.search(pattern, command))
    multirun = ["-m"] if command.endswith(" -m") else []  # Hydra wants its switches behind all overrides
    return [*words(command.removesuffix(" -m"))[1:], *more.split(), *multirun]


def run(folder: Path, *arguments: str) -> Any:
    """What the last line of standard output says; None where it is no JSON."""
    told = {"OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "PAGELAB_MODELS": str(MODELS), "TRITON_INTERPRET": "0"}
    process = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=os.environ | told, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1]) if process.stdout.endswith("}\n") else None
