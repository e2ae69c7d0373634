"""One job from config to record: skip it if it is done, run it, track it, write it down.

`main` of an experiment hands its config and a function over to `run_job`; the function measures, and knows nothing of
folders, trackers or sweeps. This module knows nothing of what is measured.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from experiments.atomic import json_file, json_line, plain, write_whole
from experiments.cli import describe, stop
from experiments.environment import ROOT, environment, source_fingerprint
from experiments.errors import UserError
from experiments.process import locked
from experiments.record import FAILED, RecordWriter, Row, is_finished
from experiments.show import following, show_metrics
from experiments.sweep_progress import Marks
from experiments.tracker.base import Tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Table = Union[Sequence[Row], "DataFrame"]
"""Rows, or a data frame where there are many."""

Draw = Callable[[Sequence[Row], Row], "Mapping[str, Figure]"]
"""(time series, metrics) → figures by file name."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a job measured. `draw` is only called where plots are wanted, `show` only for a single run."""

    metrics: Row
    tables: Mapping[str, Table] = field(default_factory=dict)
    draw: Draw | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """More files of the record, by name."""
    show: Callable[[], None] | None = None
    """Shows a single run on standard error, in place of the plain list of its metrics."""


Job = Callable[[DictConfig, Callable[[Row], None]], Result]
"""Measures; hands rows of a time series to its second argument."""


Identity = Callable[[DictConfig], Row]
"""What a job's numbers depend on that its config does not say, such as the contents of a trace."""


def run_job(cfg: DictConfig, job: Job, identity: Identity = lambda cfg: {}) -> str:
    """Run one job of a single run or a sweep; returns "finished", "skipped" or "failed".

    `metrics` gain the choice of every config group ("evictor": "lru"). A single run prints them, as the last line of
    standard output, and ends the process where it fails; a job of a sweep is silent, and leaves `failed.json`. A job
    of a sweep is skipped where a whole record of the same config, sources and `identity` lies in its folder.
    """
    hydra = HydraConfig.get()
    folder, swept = Path(hydra.runtime.output_dir), hydra.mode == RunMode.MULTIRUN
    status = "finished"
    if swept and cfg.get("watch"):
        cfg = cfg.copy()
        cfg.watch = False  # a sweep shows its own progress
    try:
        _check_seed(cfg)
        config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        with locked(folder):
            options = config.pop("record", {})
            shown = bool(config.pop("watch", False))  # how a run is looked at does not make it another run
            redo = not swept or options.get("redo")
            if not redo and is_finished(folder, config, {"source_sha256": source_fingerprint(ROOT), **identity(cfg)}):
                status = "skipped"
            else:
                metrics, show = _run(cfg, config, job, folder, plots=bool(options.get("plots")), watched=shown)
    except Exception as error:
        status = "failed"
        note_failure(folder, error)
        if not swept:
            stop(error)
    if swept:
        with suppress(OSError):
            Marks(Path(hydra.sweep.dir)).leave(str(hydra.job.num), status, str(folder))
    else:
        if show is None:
            show_metrics(metrics)
        else:
            show()
        print(f"record: {folder}", file=sys.stderr)
        sys.stderr.flush()
        print(json_line(metrics))
    return status


def note_failure(folder: Path, error: BaseException) -> None:
    """Leave the reason in the folder, if it can be written at all."""
    text = "".join(traceback.format_exception(error))
    with suppress(OSError):
        write_whole(folder / FAILED, json_file({"error": describe(error), "traceback": text}))


def chosen() -> dict[str, str]:
    """The option of every config group that describes the run: {"evictor": "lru", ...}."""
    groups = sorted(HydraConfig.get().runtime.choices.items())
    return {
        group: choice
        for group, choice in groups
        if choice is not None
        and "/" not in group
        and not group.startswith("hydra")
        and group not in ("sweep", "tracker")
    }


def _run(
    cfg: DictConfig, config: Row, job: Job, folder: Path, plots: bool, watched: bool
) -> tuple[Row, Callable[[], None] | None]:
    hydra = HydraConfig.get()
    group = (hydra.runtime.choices.get("sweep") or "multirun") if hydra.mode == RunMode.MULTIRUN else None
    name = str(folder.resolve().relative_to(Path(hydra.sweep.dir).resolve())) if group else folder.name
    series: list[Row] = []
    record = RecordWriter(folder, config)
    record.begin()
    tracker: Tracker = instantiate(cfg.tracker)
    with tracker, following(shown=group is None and not watched) as follow:
        tracker.start(folder, name, group, config)

        def log(row: Row) -> None:
            row = plain(row)
            series.append(row)
            tracker.log(row)
            follow(row)

        result = job(cfg, log)
        metrics = plain({**chosen(), **result.metrics})
        tables: dict[str, Table] = {"results": [metrics], **result.tables}
        for table, rows in tables.items():
            record.add_table(table, rows)
        record.add_table("series", series)
        for file, data in result.files.items():
            record.add(file, data)
        images = _draw(record, result, series, metrics) if plots else []
        record.add("environment.json", json_file(_provenance(metrics, config, list(hydra.overrides.task))))
        tracker.finish(metrics, tracked(tables, tracker.most_rows), images)
    record.commit(metrics)
    return dict(metrics), result.show


def _check_seed(cfg: DictConfig) -> None:
    seed = cfg.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise UserError(f"seed={seed} must be a whole number of 0 or more.")


def tracked(tables: Mapping[str, Table], most: int) -> dict[str, Sequence[Row]]:
    """The first `most` rows of every table, and a note where that is not all."""
    for name, table in tables.items():
        if 0 < most < len(table):
            print(
                f"note: the tracker keeps the first {most:,} of {len(table):,} rows of {name}; "
                f"{name}.parquet of the record has all",
                file=sys.stderr,
            )
    return {name: _first(table, most) for name, table in tables.items()}


def _first(table: Table, most: int) -> Sequence[Row]:
    if isinstance(table, Sequence):
        return table[:most]
    part: Any = table.head(most).astype(object)
    rows: list[Row] = part.where(part.notna(), None).to_dict("records")
    return rows


def _draw(record: RecordWriter, result: Result, series: Sequence[Row], metrics: Row) -> list[Path]:
    if result.draw is None:
        return []
    from experiments.plots.style import render

    plots = []
    try:
        for name, figure in result.draw(series, metrics).items():
            for suffix, data in render(figure).items():
                plots.append(record.add(f"{name}.{suffix}", data))
    except (ArithmeticError, ValueError) as error:  # numbers no axis can hold; what was measured is worth keeping
        print(f"note: not all plots could be drawn ({type(error).__name__}: {error})", file=sys.stderr)
    return plots


def _provenance(metrics: Row, config: Row, overrides: list[str]) -> Row:
    keys = ("workload_fingerprint", "num_blocks")
    return {
        **environment(),
        **{key: metrics[key] for key in keys if key in metrics},
        "seed": config.get("seed"),
        "overrides": overrides,
    }
