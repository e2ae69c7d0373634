"""What a sweep has beyond its jobs: a fixed folder, progress, and a report at the end.

Hydra calls it by name from `conf/lab.yaml`, whatever the launcher; `experiments.job` marks the jobs that end.

Knows nothing of the experiment, save that `report` can read its records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from experiments.atomic import json_line
from experiments.cli import stop, tell
from experiments.composition import check_overrides, check_sweep
from experiments.process import claim, exit_with_parent
from experiments.record import FAILED
from experiments.report import NothingToCompare, write_report
from experiments.sweep_names import SweepPlan, job_folder
from experiments.sweep_progress import Marks, ProgressThread
from experiments.sweep_report import SweepReport

SHOWN = 5
"""Failures told in full; the rest is counted."""

OmegaConf.register_new_resolver("job_folder", job_folder, replace=True)  # for conf/lab.yaml


class SweepCallback(Callback):
    """Follows one sweep from its first to its last job."""

    def __init__(self) -> None:
        self._plan: SweepPlan | None = None
        self._progress: ProgressThread | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What goes to a worker: nothing."""
        return {"_plan": None, "_progress": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Only a worker unpickles: it must not outlive a sweep that was killed."""
        self.__dict__.update(state)
        exit_with_parent()

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Of a single run: nothing but a look at its overrides."""
        try:
            check_overrides(config)
        except Exception as error:
            stop(error)  # Hydra would turn it into a warning and go on

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Fix the folder before any job is named, then watch it."""
        try:
            check_overrides(config)
            parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
            self._plan = SweepPlan(config, parser)
            check_sweep(self._plan.name, config.hydra.sweeper.get("params") or {}, config)
            _fix_folder(config, self._plan)
            claim(Path(config.hydra.sweep.dir))
            marks = Marks(Path(config.hydra.sweep.dir))
            marks.reset()
            self._progress = ProgressThread(self._plan.name, self._plan.num_jobs, marks)
            self._progress.start()
        except Exception as error:
            stop(error)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Report, say what failed, print the JSON line; exits with an error where a job or the report failed."""
        assert self._plan is not None
        assert self._progress is not None
        self._progress.stop()
        try:
            code = _finish(config, self._plan)
        except Exception as error:
            stop(error)
        if code:
            sys.exit(code)


def _fix_folder(config: DictConfig, plan: SweepPlan) -> None:
    """Every job composes its config anew: what must be the same for all goes into its overrides."""
    with read_write(config), open_dict(config):
        overrides = config.hydra.overrides.hydra
        if not any(text.lstrip("+").startswith("hydra.sweep.dir=") for text in overrides):
            config.hydra.sweep.dir = str(Path(config.hydra.sweep.dir) / plan.folder)
            overrides.append(f"hydra.sweep.dir={_quoted(config.hydra.sweep.dir)}")
        keys = ",".join(_quoted(key) for key in plan.fixed_keys)
        overrides.append(f"hydra.job.config.override_dirname.exclude_keys=[{keys}]")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _finish(config: DictConfig, plan: SweepPlan) -> int:
    sweep_folder = Path(config.hydra.sweep.dir).resolve()
    marks = Marks(sweep_folder)
    ended = marks.folders()
    marks.remove()
    failed = ended.get("failed", [])
    good = [*ended.get("finished", []), *ended.get("skipped", [])]
    lost = plan.num_jobs - sum(map(len, ended.values()))
    files: list[Path] = []
    code = 1 if failed or lost else 0
    for folder in sorted({path.parent for path in good}):
        try:
            report = write_report(folder, question=config.record.get("question"))
            files += report.files
            if ended.get("finished"):
                _track(config, plan, folder, report)
            report.show()
        except NothingToCompare as note:
            print(f"note: {note}", file=sys.stderr)
        except Exception as error:  # the records stand; `python -m experiments.report` can try again
            code = tell(error)
    _tell_failures(failed, lost, sweep_folder)
    summary = {
        "jobs": plan.num_jobs,
        "finished": len(ended.get("finished", [])),
        "skipped": len(ended.get("skipped", [])),
        "failed": len(failed) + lost,
        "folder": str(sweep_folder),
        "report": [str(path) for path in files],
    }
    sys.stderr.flush()
    print(json_line(summary))
    return code


def _track(config: DictConfig, plan: SweepPlan, folder: Path, report: SweepReport) -> None:
    """One more tracked run beside those of the jobs: the table and the plots of all of them."""
    tracker = instantiate(config.tracker)
    settings = {"sweep": plan.name, "folder": plan.folder, "jobs": plan.num_jobs}
    with tracker:
        tracker.start(folder, "report", plan.name, settings)
        tracker.finish(report.summary(), report.tables(), report.plots)


def _tell_failures(failed: Iterable[Path], lost: int, sweep_folder: Path) -> None:
    failed = list(failed)
    for folder in failed[:SHOWN]:
        try:
            reason = json.loads((folder / FAILED).read_text("utf-8"))["error"]
        except (OSError, ValueError, KeyError):
            reason = "the reason could not be written"
        print(f"failed: {folder.resolve().relative_to(sweep_folder)}: {reason}", file=sys.stderr)
    if len(failed) > SHOWN:
        print(f"failed: {len(failed) - SHOWN} more; each folder holds its {FAILED}", file=sys.stderr)
    if lost:
        print(f"failed: {lost} more jobs left no mark, most likely because the disk is full", file=sys.stderr)
