"""Weights & Biases through its official client; offline unless told otherwise, and never a question at the keyboard.

The offline run lies in `wandb/` inside the run's folder; `wandb sync FOLDER/wandb/offline-run-*` uploads it. The
summary is the metrics object, the history is the time series, tables and plots are media.

Knows nothing of the record, and keeps nothing that the record lacks.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError
from experiments.tracker.base import Row, Tracker

if TYPE_CHECKING:
    from wandb import Run

MODES = ("offline", "online", "disabled")


class WandB(Tracker):
    """One W&B run per job, many per process. Costs about 0.6 s for the first run of a process, 0.2 s for each other."""

    most_rows = 10_000  # of a logged table; W&B drops the rest without a word (wandb.Table.MAX_ROWS)

    def __init__(self, project: str, mode: str = "offline", entity: str | None = None) -> None:
        """`mode`: offline, online or disabled. Raises ValueError for any other."""
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode}")
        self._project, self._mode, self._entity = project, mode, entity
        self._run: Run | None = None
        self._keys: set[str] = set()

    def start(self, folder: Path, name: str, group: str | None, config: Mapping[str, Any]) -> None:
        import wandb

        if self._mode == "online" and not wandb.login(prompt=False):
            raise UserError(
                "tracker.mode=online needs an API key: run `wandb login` once or set WANDB_API_KEY, or stay with "
                "tracker.mode=offline and upload later with `wandb sync`."
            )
        shutil.rmtree(folder / "wandb", ignore_errors=True)  # of an earlier try that did not finish
        self._keys = set()
        self._run = wandb.init(
            project=self._project,
            entity=self._entity,
            mode=self._mode,  # type: ignore[arg-type]  # checked above
            dir=str(folder),
            name=name,
            group=group,
            config=dict(config),
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True, save_code=False, x_disable_stats=True),
        )

    def log(self, row: Row) -> None:
        assert self._run is not None
        row = {key: value for key, value in row.items() if value is not None}
        for key in sorted(row.keys() - self._keys):
            self._run.define_metric(key, summary="none")  # the summary belongs to the metrics
        self._keys |= row.keys()
        self._run.log(row)

    def finish(self, metrics: Row, tables: Mapping[str, Sequence[Row]], plots: Sequence[Path]) -> None:
        import wandb

        assert self._run is not None
        media: dict[str, Any] = {name: _table(rows) for name, rows in tables.items() if rows}
        media |= {f"plots/{plot.stem}": wandb.Image(str(plot)) for plot in plots if plot.suffix == ".png"}
        self._run.log(media)
        self._run.summary.update(metrics)
        self._close(0)

    def abort(self) -> None:
        self._close(1)

    def _close(self, exit_code: int) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=exit_code)


def _table(rows: Sequence[Row]) -> Any:
    import wandb

    columns: list[Any] = list(dict.fromkeys(key for row in rows for key in row))
    return wandb.Table(
        columns=columns, data=[[row.get(key) for key in columns] for row in rows], allow_mixed_types=True
    )
