"""The record of one run: a folder whose last file, `metrics.json`, is the commit point.

    config.yaml ──> tables, series, plots, environment.json ──> manifest.json (names and hashes) ──> metrics.json

Until `metrics.json` is there and every file is what the manifest says, the run counts as not done.

Knows nothing of caches, Hydra or trackers.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]  # ships none

from experiments.atomic import json_file, plain, remove_temporary_files, write_whole

if TYPE_CHECKING:
    from pandas import DataFrame

CONFIG, ENVIRONMENT, MANIFEST, METRICS, FAILED = (
    "config.yaml",
    "environment.json",
    "manifest.json",
    "metrics.json",
    "failed.json",
)
Row = dict[str, Any]


class BrokenRecord(Exception):
    """A folder without a whole record; the message says what is missing or wrong."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """What a finished run left."""

    folder: Path
    config: dict[str, Any]
    metrics: Row
    environment: dict[str, Any]


class RecordWriter:
    """Writes one record. Every file appears whole; nothing counts before `commit`."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """`config`: resolved, as `config_text` takes it. Raises OSError where the folder cannot be made."""
        self.folder = folder
        self._config = config_text(config)
        self._hashes: dict[str, str] = {}

    def begin(self) -> None:
        """Sweep up after a killed run and say what this one is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_temporary_files(self.folder)
        (self.folder / FAILED).unlink(missing_ok=True)
        self.add(CONFIG, self._config.encode())

    def add(self, name: str, data: bytes) -> Path:
        """One file of the record. Raises OSError."""
        write_whole(self.folder / name, data)
        self._hashes[name] = hashlib.sha256(data).hexdigest()
        return self.folder / name

    def add_table(self, name: str, rows: Sequence[Row] | DataFrame) -> None:
        """`name.parquet`, one column per key; a value of rows that JSON cannot hold (inf) is written as a word."""
        self.add(f"{name}.parquet", parquet(rows) if isinstance(rows, Sequence) else _frame_parquet(rows))

    def commit(self, metrics: Row) -> None:
        """The run is done: from here on it is skipped by a re-run."""
        data = json_file(metrics)
        self._hashes[METRICS] = hashlib.sha256(data).hexdigest()
        write_whole(self.folder / MANIFEST, json_file({"sha256": self._hashes}))
        write_whole(self.folder / METRICS, data)


def config_text(config: Mapping[str, Any]) -> str:
    """A resolved config as the text of `config.yaml`: equal texts mean equal runs."""
    return str(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))


def is_finished(folder: Path, config: Mapping[str, Any], identity: Mapping[str, Any] | None = None) -> bool:
    """True where a whole record of exactly this config, made under the same `identity`, lies in the folder.

    `identity`: keys of `environment.json` that must be equal, such as the hash of the sources.
    """
    try:
        made = read_record(folder).environment
        same = all(made.get(key) == value for key, value in (identity or {}).items())
        return same and (folder / CONFIG).read_text("utf-8") == config_text(config)
    except (BrokenRecord, OSError, UnicodeDecodeError):
        return False


def read_record(folder: Path) -> StoredRecord:
    """The record in a folder. Raises BrokenRecord where it is unfinished, or a file is missing or not as written."""
    if (folder / FAILED).exists():
        raise BrokenRecord("the run failed")
    if not (folder / METRICS).exists():
        raise BrokenRecord("the run did not finish")
    metrics, manifest = _object(folder / METRICS), _object(folder / MANIFEST)
    hashes = manifest.get("sha256")
    if not isinstance(hashes, dict):
        raise BrokenRecord(f"{MANIFEST} names no files")
    for name, wanted in hashes.items():
        try:
            found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError:
            raise BrokenRecord(f"{name} is missing") from None
        if found != wanted:
            raise BrokenRecord(f"{name} is not what was written")
    config = yaml.safe_load((folder / CONFIG).read_text("utf-8"))
    return StoredRecord(folder, config, metrics, _object(folder / ENVIRONMENT))


def parquet(rows: Sequence[Row]) -> bytes:
    """Rows as the bytes of a parquet file; among other numbers inf and NaN stay numbers."""
    import pyarrow
    import pyarrow.parquet

    numbers = _columns_of_floats(rows)
    cells = [{**plain(row), **{key: float(row[key]) for key in numbers if row.get(key) is not None}} for row in rows]
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(cells), buffer)
    return bytes(buffer.getvalue())


def _columns_of_floats(rows: Sequence[Row]) -> list[str]:
    """Columns of numbers of which some are finite and some are not."""
    found = []
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row[key] for row in rows if row.get(key) is not None]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            finite = sum(map(isfinite, values))
            if 0 < finite < len(values):
                found.append(key)
    return found


def _frame_parquet(frame: DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError:
        raise BrokenRecord(f"{path.name} is missing") from None
    except ValueError:
        raise BrokenRecord(f"{path.name} is not JSON") from None
    if not isinstance(value, dict):
        raise BrokenRecord(f"{path.name} is not a JSON object")
    return value
