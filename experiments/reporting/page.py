"""A report as one HTML page: question, charts, tables, what differs, where it was made.

Knows nothing of how the table was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.html.chart import Chart, Line, Point
from experiments.html.render import percent, render_page
from experiments.plots.style import looks, thousands
from experiments.record import StoredRecord
from experiments.reporting.differences import config_differences, machines
from experiments.reporting.markdown import WANTED, readable_cell
from experiments.reporting.names import workload_of
from experiments.reporting.table import ENDS, INF, one_row_per_point, short_table
from experiments.wording import signed_percent

if TYPE_CHECKING:
    from pandas import DataFrame

CEILING = "infinite cache"
INK = "currentColor"
MOST_NAMED = 7
"""Policies that the question names one by one."""


def page(frame: DataFrame, notes: Sequence[str], records: Sequence[StoredRecord], question: str | None = None) -> str:
    """The whole page. `question`: what the sweep was run to find out; made up from its axes where it is None."""
    points, first = one_row_per_point(frame), records[0]
    charts = [*_by_pool(points), *_by_block_size(points)]
    columns, rows = short_table(frame)
    differing, common = config_differences(records)
    wanted = [column for column in WANTED if column in frame]
    seen = {line.name: line for chart in charts for line in chart.lines}
    values = [value for chart in charts for value in chart.values]  # one scale, so that charts compare
    return render_page(
        "report",
        script="chart.js",
        title=f"{len(frame)} runs over {workload_of(first)}",
        question=question or _question(points, first),
        tiles=_tiles(points, first),
        notes=notes,
        legend=list(seen.values()),
        charts=[chart.drawing(min(values), max(values)) for chart in charts],
        columns=columns,
        rows=rows,
        differing=differing,
        common=common,
        machines=machines(records),
        every_columns=wanted,
        every=[[readable_cell(key, getattr(run, key)) for key in wanted] for run in frame.itertuples()],
    )


def _question(points: DataFrame, first: StoredRecord) -> str:
    sizes = sorted(int(size) for size in points.block_size.unique())
    pools = list(points.sort_values("pool_tokens").pool_group.unique())
    policies = sorted(points.policy.unique())
    names = ", ".join(policies) if len(policies) <= MOST_NAMED else f"{len(policies)} policies"
    told = f"blocks of {', '.join(map(str, sizes))} tokens and pools of {', '.join(pools)}"
    requests, tokens = first.metrics.get("requests", 0), first.metrics.get("prompt_tokens", 0)
    return (
        f"How much of {requests:,} requests ({thousands(tokens)} prompt tokens) need not be computed again under "
        f"{names}, with {told}?"
    )


def _tiles(points: DataFrame, first: StoredRecord) -> list[dict[str, str]]:
    online = points[points.base != "belady"] if (points.base != "belady").any() else points
    best: Any = online.sort_values("token_hit_rate").iloc[-1]
    tiles = [
        {
            "value": percent(best.token_hit_rate),
            "text": f"at best: {best.policy}, blocks of {int(best.block_size)}, pool {best.pool_group}",
        },
        {"value": percent(points.ceiling_token_hit_rate.max()), "text": "an infinite cache would hit"},
    ]
    closed = online[online.gap_closed.notna() & (online.base != "lru")]
    if len(closed):
        top = closed.groupby("policy").gap_closed.mean()
        tiles.append(
            {"value": percent(top.max()), "text": f"of the gap from LRU to Belady closed by {top.idxmax()}, on average"}
        )
    return [*tiles, {"value": f"{first.metrics.get('requests', 0):,}", "text": "requests in every run"}]


def _by_pool(points: DataFrame) -> list[Chart]:
    finite = points[points.pool_tokens < INF]
    charts = []
    for size, part in finite.groupby("block_size"):
        if part.pool_group.nunique() > 1:
            ordered = part.sort_values("pool_tokens")
            names = {group: _pool(row) for group, row in ordered.groupby("pool_group").first().iterrows()}
            places = [names[group] for group in ordered.pool_group.unique()]
            charts.append(_chart(f"{size} tokens per block", "pool", places, part, part.pool_group.map(names)))
    return charts


def _by_block_size(points: DataFrame) -> list[Chart]:
    charts = []
    finite = points[points.pool_tokens < INF].sort_values("pool_tokens")
    for group, part in finite.groupby("pool_group", sort=False):
        if part.block_size.nunique() > 1:
            places = [str(size) for size in sorted(part.block_size.unique())]
            charts.append(_chart(f"pool {group}", "block size (tokens)", places, part, part.block_size.astype(str)))
    return charts


def _chart(title: str, x_label: str, places: list[str], part: DataFrame, xs: Any) -> Chart:
    part = part.assign(place=xs)
    styles, lines = looks(part.policy), []
    for policy, rows in part.groupby("policy"):
        shown: list[Any] = sorted(rows.itertuples(), key=lambda row: places.index(str(row.place)))
        look = styles[str(policy)]
        points = [Point(row.place, row.token_hit_rate, _tip(str(policy), row)) for row in shown]
        color = INK if look.color == "#000000" else look.color
        lines.append(Line(str(policy), color, points, "" if look.dashes == "-" else "6 4"))
    ceiling = part.groupby("place").ceiling_token_hit_rate.max()
    points = [
        Point(place, float(ceiling[place]), f"{CEILING}, {place}\n{percent(ceiling[place], 2)}") for place in places
    ]
    return Chart(title, x_label, "token hit rate", places, [*lines, Line(CEILING, INK, points, "2 3")])


def _tip(policy: str, row: Any) -> str:
    lines = [policy, f"{percent(row.token_hit_rate, 2)} of prompt tokens hit"]
    lines.append(f"blocks of {int(row.block_size)}, pool of {thousands(row.pool_tokens)} tokens ({row.pool_group})")
    if row.gap_closed == row.gap_closed and row.base not in ENDS:
        lines.append(f"{signed_percent(row.gap_closed)} of the gap from LRU to Belady")
    return "\n".join(lines)


def _pool(row: Any) -> str:
    group = str(row.name)
    return group if group.endswith("%") else thousands(row.pool_tokens)
