"""What a run's record holds of its ledger: counts among the metrics, tables, a figure.

Knows nothing of what was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cache.ledger import Ledger
from cache.observer import Observer
from cache.reasons import HIT, REASONS
from experiments import frames
from experiments.job import Draw, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Row = dict[str, Any]


def with_reasons(result: Result, observer: Observer) -> Result:
    """The result of a run that `observer` watched: with counts, tables and figure where that is a ledger."""
    if not isinstance(observer, Ledger):
        return result
    tables = {**result.tables, **ledger_tables(observer)}
    draw = result.draw and with_ledger(result.draw, observer)
    return replace(result, metrics=result.metrics | miss_counts(observer), tables=tables, draw=draw)


def miss_counts(ledger: Ledger) -> Row:
    """Missed blocks by reason, as metrics: `miss_evicted`, `miss_first_seen`, …"""
    return {f"miss_{reason}": ledger.counts[reason] for reason in REASONS if reason != HIT}


def ledger_tables(ledger: Ledger) -> dict[str, DataFrame]:
    """`reasons`, `ages` (in requests), `ages_seconds`; every block in `ledger` where the ledger kept them."""
    tables = {"reasons": frames.reasons(ledger), "ages": frames.ages(ledger)}
    tables["ages_seconds"] = frames.ages(ledger, "seconds")
    if ledger.rows is not None:
        tables["ledger"] = frames.lookups(ledger)
    return tables


def with_ledger(draw: Draw, ledger: Ledger) -> Draw:
    """The run's own figures and the ledger's."""

    def both(series: Sequence[Row], metrics: Row) -> Mapping[str, Figure]:
        from experiments.plots.ledger import draw_ledger

        return {**draw(series, metrics), **draw_ledger(frames.reasons(ledger), frames.ages(ledger))}

    return both
