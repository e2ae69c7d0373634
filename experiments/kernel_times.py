"""A table of kernel times by block size, from a file somebody else measured: jsonl, csv or parquet.

Knows nothing of kernels: the fastest row of each block size counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.errors import UserError

READERS: dict[str, Callable[[Path], Any]] = {
    ".jsonl": partial(pd.read_json, lines=True),
    ".csv": pd.read_csv,
    ".parquet": pd.read_parquet,
}
USUAL = ("us", "time_us", "p50_us", "median_us", "mean_us")


def read_kernel_times(path: str, column: str | None = None) -> dict[int, float]:
    """Microseconds by block size. Raises UserError for a file without `block_size` and a time, or with bad values."""
    file = Path(path)
    if file.suffix not in READERS:
        raise UserError(f"kernel_times={path}: give a .jsonl, .csv or .parquet file.")
    if not file.exists():
        raise UserError(f"kernel_times={path}: there is no such file.")
    try:
        frame: pd.DataFrame = READERS[file.suffix](file)
    except (ValueError, OSError) as error:
        raise UserError(f"kernel_times={path} cannot be read as {file.suffix[1:]}: {error}") from None
    if "block_size" not in frame:
        raise UserError(f"kernel_times={path} has no column block_size, only {', '.join(map(str, frame.columns))}.")
    name = column or _time_column(path, frame)
    if name not in frame:
        raise UserError(f"kernel_times={path} has no column {name}, only {', '.join(map(str, frame.columns))}.")
    sizes, times = (pd.to_numeric(frame[key], errors="coerce") for key in ("block_size", name))
    bad = frame.index[~((times > 0) & (sizes >= 1) & (sizes % 1 == 0))]
    if len(bad):
        row = frame.loc[bad[0]]
        raise UserError(
            f"kernel_times={path}, row {int(bad[0]) + 1}: block_size={row['block_size']} and {name}={row[name]} must "
            f"be a positive whole number and a positive time in µs."
        )
    fastest = times.groupby(sizes.astype(int)).min()
    return {int(str(size)): float(time) for size, time in fastest.items()}


def _time_column(path: str, frame: pd.DataFrame) -> str:
    ends = [str(name) for name in frame.columns if str(name).endswith("_us")]
    for name in (*USUAL, *(ends if len(ends) == 1 else ())):
        if name in frame:
            return str(name)
    raise UserError(
        f"kernel_times={path}: which column is the time in µs? Name it with kernel_time_column=..., one of "
        f"{', '.join(map(str, frame.columns))}."
    )
