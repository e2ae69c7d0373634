"""All runs of a report as one table, and the short one people read.

Hit rates are token hit rates, of prompt tokens, unless a column says otherwise.

Knows nothing of files or pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.record import StoredRecord
from experiments.reporting.differences import differing_groups, untold, value_of
from experiments.wording import signed_percent

if TYPE_CHECKING:
    from pandas import DataFrame

INF = float("inf")
WORDS = ("nan", "inf", "-inf")
NO_SHARING = "no sharing"
ENDS = ("lru", "belady")
"""Policies that a gap lies between."""


def table(records: Sequence[StoredRecord]) -> tuple[DataFrame, list[str]]:
    """One row per run: its metrics, `policy`, `pool_group` (what counts as the same pool), `gap_closed`; and notes.

    `policy` tells apart whatever differs between the runs beside block size, pool and seed: `base` is the evictor in
    it (or "no sharing"), `setup` the rest that LRU and Belady could have as well, so that a gap is one within a setup.
    """
    from pandas import DataFrame

    rows = [{**record.metrics, "run": record.folder.name} for record in records]
    frame = DataFrame(
        {key: _column([row.get(key) for row in rows]) for key in dict.fromkeys(k for r in rows for k in r)}
    )
    for column in ("num_blocks", "pool_tokens"):
        frame[column] = frame[column].astype(float)
    frame["pool_group"] = [_pool_group(row) for row in frame.itertuples()]
    frame["base"] = [NO_SHARING if row.allocator == "naive" else str(row.evictor) for row in frame.itertuples()]
    frame["policy"], frame["setup"] = _policies(frame, records)
    frame["gap_closed"] = _gap_closed(frame)
    notes = _notes(frame, records)
    front = ["policy", "block_size", "pool_group", "token_hit_rate", "ceiling_token_hit_rate", "gap_closed"]
    frame = frame[front + [column for column in frame.columns if column not in front]]
    frame = frame.sort_values(["block_size", "pool_tokens", "token_hit_rate"], ignore_index=True)
    return frame, notes


def one_row_per_point(frame: DataFrame) -> DataFrame:
    """Means over runs that differ only in their seed."""
    keys = ["policy", "base", "setup", "block_size", "pool_group"]
    values = ["pool_tokens", "num_blocks", "token_hit_rate", "ceiling_token_hit_rate", "gap_closed"]
    return frame.groupby(keys, as_index=False)[values].mean()


def short_table(frame: DataFrame) -> tuple[list[str], list[list[str]]]:
    """Columns are pools, rows policies, a section for every block size."""
    points = one_row_per_point(frame)
    groups = list(points.sort_values("pool_tokens").pool_group.unique())
    rows: list[list[str]] = []
    for size, part in points.groupby("block_size"):
        rows.append([f"{size} tokens per block"])
        best = part.groupby("policy").token_hit_rate.mean().sort_values()
        for policy in best.index:
            cells = [part[(part.policy == policy) & (part.pool_group == group)] for group in groups]
            rows.append([policy, *(_cell(cell) for cell in cells)])
        ceilings = [part[part.pool_group == group].ceiling_token_hit_rate.max() for group in groups]
        rows.append(["infinite cache", *("" if value != value else f"{value:.1%}" for value in ceilings)])
    return ["policy", *(f"pool {group}" for group in groups)], rows


def _column(values: list[Any]) -> list[Any]:
    """A record writes what JSON cannot hold as a word; among numbers it becomes a number again."""
    others = [value for value in values if value not in WORDS]
    if others and all(isinstance(value, int | float) for value in others):
        return [float(value) if value in WORDS else value for value in values]
    return values


def _policies(frame: DataFrame, records: Sequence[StoredRecord]) -> tuple[list[str], list[str]]:
    """(policy, setup) of every run: the evictor, and of all else only what differs between runs."""
    points = list(frame[["base", "block_size", "pool_group"]].itertuples(index=False, name=None))
    sharing = [record for record, (base, *_) in zip(records, points, strict=True) if base != NO_SHARING]
    groups = differing_groups(sharing, without=("evictor", "workload"))
    options = [
        [str(record.metrics.get(group)) for group in groups if point[0] != NO_SHARING or group != "allocator"]
        for record, point in zip(records, points, strict=True)
    ]
    keys = untold(records, [(*point, *chosen) for point, chosen in zip(points, options, strict=True)])
    names, setups = [], []
    for record, (base, *_), chosen in zip(records, points, options, strict=True):
        values = {key: value for key in keys if (value := value_of(record, key)) is not None}
        told = {key: f"{key.rpartition('.')[2]}={value}" for key, value in values.items()}
        names.append(" · ".join([base, *chosen, *told.values()]))
        setups.append(" · ".join([*chosen, *(text for key, text in told.items() if "evictor." not in key)]))
    return names, setups


def _pool_group(row: Any) -> str:
    """Pools asked for as a share hold the same tokens at any block size; pools counted in blocks do not."""
    asked = str(row.pool)
    return asked if asked.endswith("%") or row.pool_tokens == INF else f"{row.pool_tokens:,.0f} tokens"


def _gap_closed(frame: DataFrame) -> list[float]:
    place = ["setup", "block_size", "pool_group"]
    means = frame.groupby(["base", *place]).token_hit_rate.mean().to_dict()
    shares = []
    for row in frame.itertuples():
        low, high = (means.get((end, *(getattr(row, key) for key in place)), float("nan")) for end in ENDS)
        known = high > low and row.base != NO_SHARING
        shares.append((row.token_hit_rate - low) / (high - low) if known else float("nan"))
    return shares


def _notes(frame: DataFrame, records: Sequence[StoredRecord]) -> list[str]:
    notes = []
    refused = frame[frame.refused > 0] if "refused" in frame else frame[:0]
    if len(refused):
        notes.append(f"{len(refused)} runs refused requests larger than their pool: rates are of the requests served")
    runs = frame.groupby(["policy", "block_size", "pool_group"])
    seeds = int(runs.seed.nunique().max()) if "seed" in frame else 1
    if seeds > 1:
        notes.append(f"every rate is the mean over up to {seeds} seeds; the table of every run has them one by one")
    if "seed" in frame and (again := int(frame.duplicated([*runs.keys, "seed"]).sum())):
        notes.append(f"{again} runs repeat another one's config: where their results differ, the rate is the mean")
    finite = frame[frame.pool_tokens < INF]
    sizes, spread = finite.block_size.nunique(), finite.groupby("pool_group").block_size.nunique()
    if sizes > 1 and len(spread) and spread.max() == 1:
        notes.append(
            "block sizes are not compared, because each has pools of its own size in tokens: give num_blocks as a "
            "share of the workload (num_blocks=5%) to compare them"
        )
    if len({record.environment.get("source_sha256") for record in records}) > 1:
        notes.append("the runs were made by different versions of the source (record.redo=true runs them again)")
    return notes


def _cell(part: DataFrame) -> str:
    if part.empty:
        return ""
    base, rate, gap = part.base.iloc[0], part.token_hit_rate.iloc[0], part.gap_closed.iloc[0]
    return f"{rate:.1%}" if gap != gap or base in ENDS else f"{rate:.1%} ({signed_percent(gap)})"
