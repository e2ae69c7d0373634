"""Sweeps on a Ray cluster: every job of the grid is one Ray task.

Hydra looks for launchers in this folder only. Its own Ray plugin pins an old cloudpickle and brings a client of a cloud
with it; all a sweep needs of Ray is `remote` and `get`.

The sweep's folder must be seen by all machines (a network folder); where it is not, jobs leave their records on the
machines they ran on, and `python -m experiments.report FOLDER FOLDER ...` joins them. A worker that dies takes its job
with it, never the sweep.

Knows nothing of what a job does. Ray is imported when a sweep starts, not when Hydra looks for plugins.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


class RayLauncher(Launcher):
    """`init` goes to `ray.init`, `remote` to the options of every task; see `conf/hydra/launcher/ray.yaml`."""

    def __init__(self, init: Mapping[str, Any], remote: Mapping[str, Any]) -> None:
        self._init, self._remote = dict(init), dict(remote)
        self._context: HydraContext | None = None
        self._task: TaskFunction | None = None
        self._config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before `launch`."""
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs and wait for all of them. Jobs of a lost worker are told on standard error."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
        import ray

        assert self._context is not None
        assert self._config is not None
        setup_globals()
        folder = Path(str(self._config.hydra.sweep.dir)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        with redirect_stdout(sys.stderr):  # Ray tells of dead workers there, and the last line must be JSON
            return self._run_all(ray, folder, job_overrides, initial_job_idx)

    def _run_all(
        self, ray: Any, folder: Path, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        assert self._context is not None
        assert self._config is not None
        ray.init(**{"include_dashboard": False, "log_to_driver": False, "logging_level": "error", **self._init})
        try:
            job = ray.remote(_run).options(**self._remote)
            state = ray.put((self._context, self._task, Singleton.get_state(), os.getcwd()))
            waiting = []
            for index, overrides in enumerate(job_overrides, start=initial_job_idx):
                config = self._context.config_loader.load_sweep_config(self._config, list(overrides))
                with open_dict(config):
                    config.hydra.job.id = f"ray-{index}"
                    config.hydra.job.num = index
                    config.hydra.sweep.dir = str(folder)
                waiting.append(job.remote(state, config))
            return [_result(ref, overrides) for ref, overrides in zip(waiting, job_overrides, strict=True)]
        finally:
            ray.shutdown()


def _run(state: tuple[HydraContext, TaskFunction, Any, str], config: DictConfig) -> JobReturn:
    context, task, singletons, folder = state
    if os.path.isdir(folder):
        os.chdir(folder)  # paths on the command line are meant from there
    setup_globals()
    Singleton.set_state(singletons)
    return run_job(
        hydra_context=context,
        task_function=task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _result(ref: Any, overrides: Sequence[str]) -> JobReturn:
    import ray

    try:
        result: JobReturn = ray.get(ref)
        return result
    except ray.exceptions.RayError as error:
        name = ",".join(filter_overrides(overrides))
        print(f"lost: {name}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
        lost = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)  # so that the sweep gets to its report
        lost.return_value = "lost"
        return lost
