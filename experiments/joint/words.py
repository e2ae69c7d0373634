"""A joint sweep's findings as text: cells, tables, notes.

Knows nothing of files or pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.joint.differences import CONFIDENCE, EQUAL, ONE_SEED, UNCLEAR
from experiments.joint.measures import MEASURES, Measure
from experiments.joint.table import Axes
from experiments.record import StoredRecord
from experiments.sweep_report import rows_of

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
SETTING = {"block_size": "blocks of {} tokens", "pool": "pool {}", "rate": "{} req/s", "gpu": "{}", "model": "{}"}
MOST_SHOWN = 10
"""Combinations of a setting that the terminal shows; the files have all."""


def setting_text(row: Row, axes: Axes) -> str:
    """A setting in words: "blocks of 16 tokens, pool 10%"."""
    return ", ".join(SETTING.get(name, f"{name} {{}}").format(row[name]) for name in reversed(axes.settings))


def policy_text(row: Row, axes: Axes) -> str:
    """A combination in words: "hazard · longest_prefix · last"."""
    return " · ".join(str(row[name]) for name in axes.policies)


def change_text(row: Row, measure: Measure) -> str:
    """A difference with half the width of its interval, if it has any; ≈ before one that cannot be told from zero."""
    change, high = row[f"{measure.key}_difference"], row[f"{measure.key}_high"]
    verdict = row[f"{measure.key}_verdict"]
    if change is None:
        return "nothing to compare with"
    if verdict == EQUAL:
        return "="
    told = measure.difference(change, None if verdict == ONE_SEED or high == change else high - change)
    return f"≈ {told}" if verdict == UNCLEAR else told


def best_first(points: DataFrame, first: Measure = MEASURES[0]) -> DataFrame:
    """Rows in order of one measure; where it says the same, of the others."""
    order = [first, *(measure for measure in MEASURES if measure is not first)]
    return points.sort_values([m.key for m in order], ascending=[not m.more_is_better for m in order], kind="stable")


def combinations(points: DataFrame, axes: Axes, most: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: a section per setting, best goodput first; `most` of each, and the baseline in any case."""
    columns = [" · ".join(axes.policies), *(f"{m.title} ({m.units})" for m in MEASURES), "seeds"]
    rows: list[list[str]] = []
    for _, part in points.groupby(axes.settings, dropna=False):
        ordered = rows_of(best_first(part))
        rows.append([setting_text(ordered[0], axes)])
        for place, row in enumerate(ordered):
            if most is None or place < most or row["is_baseline"]:
                rows.append([policy_text(row, axes), *(_cell(row, m) for m in MEASURES), str(row["seeds"])])
    return columns, rows


def choices(effects: DataFrame, axes: Axes) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of what each choice alone is worth, a section per setting."""
    columns = ["choice", *(f"{m.title} ({m.difference_unit})" for m in MEASURES)]
    rows: list[list[str]] = []
    for _, part in effects.groupby(axes.settings, dropna=False) if len(effects) else ():
        found = rows_of(part)
        rows.append([setting_text(found[0], axes)])
        for row in found:
            rows.append([f"{row['choice']} for {row['instead_of']}", *(change_text(row, m) for m in MEASURES)])
    return columns, rows


def notes_of(frame: DataFrame, points: DataFrame, axes: Axes, records: Sequence[StoredRecord]) -> list[str]:
    """What a reader has to know beside the numbers: the baseline, what is random, how far the intervals reach."""
    seeds = frame.seed.nunique()
    usual = " · ".join(axes.baseline[name] for name in axes.policies)
    notes = [f"the baseline is {usual}, at the same setting and from the same seed"]
    if seeds == 1:
        notes.append("one seed: differences have no interval and may be luck (seed=0,1,2,3 gives four)")
    else:
        notes += _on_intervals(frame, points, axes, seeds)
    if not frame.goodput.any():
        notes.append(
            "no request of any run met both limits (slo.ttft, slo.tpot): goodput tells nothing here; take a lower rate "
            "(rate=...) or wider limits"
        )
    if frame.failed.any():
        notes.append(f"{int((frame.failed > 0).sum())} runs could not serve all requests: they count as not good")
    grid = points.seeds.min() < seeds or len(points) < _grid(points, axes)
    if grid:
        notes.append("runs are missing from the grid: a seed that a combination or the baseline lacks is not compared")
    if len({record.environment.get("source_sha256") for record in records}) > 1:
        notes.append("the runs were made by different versions of the source (record.redo=true runs them again)")
    return notes


def _on_intervals(frame: DataFrame, points: DataFrame, axes: Axes, seeds: int) -> list[str]:
    told = f"± is half of the {CONFIDENCE:.0%} interval of the mean of {seeds} paired differences, one per seed"
    compared = points[~points.is_baseline]
    verdicts = compared[[f"{m.key}_verdict" for m in MEASURES]].to_numpy().ravel().tolist()
    unclear = verdicts.count(UNCLEAR)
    widths = [compared[f"{m.key}_high"] - compared[f"{m.key}_low"] for m in MEASURES]
    random = int(sum((width > 0).sum() for width in widths))
    notes = []
    if random:
        chance = round((1 - CONFIDENCE) * random)
        by_chance = f", and of those that are, up to about {chance} may be so by chance alone" if chance else ""
        notes.append(
            f"{told}; {unclear} of {random} differences that vary with the seed are not distinguishable from none (≈)"
            f"{by_chance}"
        )
    runs = frame.groupby(axes.points, dropna=False)
    spread = runs[[m.key for m in MEASURES]].nunique().max(axis=1)[runs.size() > 1]
    fixed = int((spread == 1).sum())
    if fixed and fixed == len(spread):
        notes.append("nothing here is random: every seed gave the same numbers, and one is enough")
    elif fixed:
        notes.append(
            f"{fixed} of {len(spread)} combinations gave the same numbers at every seed: the requests are fixed, and "
            "the intervals of the others tell the luck of the policy, not how it would do on other traffic"
        )
    return notes


def _grid(points: DataFrame, axes: Axes) -> int:
    size = points[axes.settings].drop_duplicates().shape[0]
    for name in axes.policies:
        size *= points[name].nunique()
    return size


def _cell(row: Row, measure: Measure) -> str:
    value = measure.short(row[measure.key])
    return f"{value} (baseline)" if row["is_baseline"] else f"{value} ({change_text(row, measure)})"
