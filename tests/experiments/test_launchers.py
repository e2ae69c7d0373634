"""The same sweep on one machine, on Slurm and on a Ray cluster of two workers."""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.plugins import Plugins
from hydra.utils import get_class
from omegaconf import OmegaConf
from support import toy_lab
from support.conf import CONF, options

LAUNCHERS = ["basic", "joblib", "submitit_slurm", *options("hydra/launcher")]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("sweep", options("sweep"))
def test_every_sweep_runs_on_every_launcher(sweep: str, launcher: str) -> None:
    """A key of one launcher in a sweep's yaml would break the others."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("replay", [f"sweep={sweep}", f"hydra/launcher={launcher}"], return_hydra_config=True)
    node = OmegaConf.to_container(cfg.hydra.launcher, resolve=False)
    target = get_class(node.pop("_target_"))
    assert f"{target.__module__}.{target.__qualname__}" in Plugins.instance().class_name_to_class
    known = set(inspect.signature(target).parameters)
    if "slurm" in launcher:
        from hydra_plugins.hydra_submitit_launcher.config import SlurmQueueConf

        known = {field.name for field in fields(SlurmQueueConf)}
    assert set(node) <= known | {"kwargs"} or "kwargs" in known


FAKES = {
    "sbatch": """#!/bin/sh
# Runs the tasks of an array one after the other, in the background, as job 77_0, 77_1, ...
script=$(eval echo \\${$#})
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
( for i in $(seq 0 ${last:-0}); do
    SLURM_JOB_ID=$((100 + i)) SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=$i SLURM_NODELIST=here SLURM_PROCID=0 \\
    SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NTASKS_PER_NODE=1 sh "$script"
  done ) >"$0.log" 2>&1 </dev/null &
echo "Submitted batch job 77"
""",
    "srun": """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case "$1" in --*=*|--unbuffered|--*ed) shift;; *) shift 2;; esac; done
exec "$@"
""",
    "sacct": """#!/bin/sh
echo "JobID|State|NodeList|"
for i in 0 1 2 3 4 5; do echo "77_$i|RUNNING|here|"; done
""",
    "scontrol": "#!/bin/sh\necho here\n",
}


def test_a_sweep_runs_on_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is a stand-in of a few lines of shell; scripts, pickles and folders are submitit's own."""
    toy_lab.make_toy_lab(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in FAKES.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755 | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    slurm = ["hydra/launcher=slurm", "hydra.launcher.partition=cpu"]
    code, out, err = toy_lab.run(tmp_path, "sweep=grid", "evictor=lru,belady", "block_size=16", *slurm)
    assert code == 0, err + (tools / "sbatch.log").read_text()
    assert toy_lab.last_json(out)["finished"] == 2
    script = next((tmp_path / "runs").rglob("*_submission.sh"))
    assert "#SBATCH --partition=cpu" in script.read_text()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a head and two workers of one CPU each."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        yield cluster.address
    finally:
        cluster.shutdown()


WHERE = 'calls.write(f"{evictor} {cfg.block_size}\\n")'
TELLS_NODE = """import ray
        calls.write(f"{ray.get_runtime_context().get_node_id()} {evictor}\\n")"""


def test_a_sweep_uses_both_workers_of_a_ray_cluster_and_outlives_a_dead_one(cluster: str, tmp_path: Path) -> None:
    toy_lab.make_toy_lab(tmp_path)
    app = toy_lab.APP.replace(WHERE, TELLS_NODE).replace(
        "cfg.fail == evictor", 'cfg.fail == "kill" and evictor == "fifo"'
    )
    (tmp_path / "toy.py").write_text(app.replace('raise UserError("told to fail")', "os.kill(os.getpid(), 9)"))
    ray = [
        "sweep=grid",
        "hydra/launcher=ray",
        f"hydra.launcher.init.address={cluster}",
        "hydra.launcher.remote.max_retries=0",
    ]
    code, out, err = toy_lab.run(tmp_path, *ray, "sleep=0.4", "fail=kill")
    lines = toy_lab.calls(tmp_path)
    assert len({line.split()[0] for line in lines}) == 2, "both workers had jobs"
    assert code == 1, err
    assert (toy_lab.last_json(out)["finished"], toy_lab.last_json(out)["failed"]) == (4, 2)
    assert err.count("lost: ") == 2
    (tmp_path / "calls").unlink()
    code, out, err = toy_lab.run(tmp_path, *ray, "sleep=0.4", "fail=null")
    assert code == 0, err
    assert len(toy_lab.calls(tmp_path)) == 6, "another config (fail) is another sweep"
    assert toy_lab.last_json(out)["report"]
