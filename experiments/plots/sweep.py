"""What a sweep shows: hit rate against pool size, against block size, and how much of the gap to Belady is closed.

Takes the frame of `experiments.report`; knows nothing of records or folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLACK, Look, label_ends, looks, panels, paper, some, thousands
from experiments.wording import signed_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

RATE = "token_hit_rate"
CEILING = "ceiling_token_hit_rate"
WORTH_CLOSING = 0.01
"""A gap between LRU and Belady below this (in hit rate) says nothing about a policy and is left out."""
FAR_BELOW = -1.0
"""Shares of the gap below this are drawn at the edge, with an arrow."""


def draw_sweep(frame: DataFrame) -> dict[str, Figure]:
    """Figures by file name; those whose axis has a single point are left out.

    `frame`: columns policy, block_size, pool_group, pool_tokens (inf allowed), num_blocks, token_hit_rate,
    ceiling_token_hit_rate, gap_closed (NaN where there is no gap), and where policies ran in several setups base (the
    policy's evictor) and setup; one row per combination.
    """
    frame = frame.assign(base=frame.get("base", frame.policy), setup=frame.get("setup", ""))
    figures = {}
    finite = frame[frame.pool_tokens < float("inf")]
    with paper():
        if finite.groupby("block_size").pool_tokens.nunique().max() > 1:
            figures["hit_rate_by_pool"] = _by_pool(finite)
        wide = finite.groupby("pool_group").filter(lambda group: group.block_size.nunique() > 1)
        if len(wide):
            figures["hit_rate_by_block_size"] = _by_block_size(wide)
        contested = _contested(frame)
        if len(contested):
            figures["gap_closed"] = _gap_closed(contested, looks(frame.policy))
    return figures


def _by_pool(frame: DataFrame) -> Figure:
    sizes = some(sorted(frame.block_size.unique()))
    figure, axes = panels(len(sizes), sharey=True, height=_height(frame))
    texts = {row.pool_group: _pool_text(row) for row in frame.sort_values("block_size", ascending=False).itertuples()}
    for panel, size in zip(axes, sizes, strict=True):
        part = frame[frame.block_size == size]
        panel.set_xscale("log")
        places = part.drop_duplicates("pool_group").itertuples()
        _ticks(panel, [(row.pool_tokens, texts[row.pool_group]) for row in places])
        panel.set(title=f"{size} tokens per block", xlabel="pool (tokens)")
    _finish(figure, axes, [(frame[frame.block_size == size], "pool_tokens") for size in sizes])
    return figure


def _by_block_size(frame: DataFrame) -> Figure:
    groups = some(list(frame.sort_values("pool_tokens").pool_group.unique()))
    figure, axes = panels(len(groups), sharey=True, height=_height(frame))
    for panel, group in zip(axes, groups, strict=True):
        part = frame[frame.pool_group == group]
        panel.set_xscale("log", base=2)
        _ticks(panel, [(size, f"{size}") for size in sorted(part.block_size.unique())])
        title = f"pool of {thousands(part.pool_tokens.median())} tokens"
        panel.set(title=f"{title} ({group})" if group.endswith("%") else title, xlabel="block size (tokens)")
    _finish(figure, axes, [(frame[frame.pool_group == group], "block_size") for group in groups])
    return figure


def _height(frame: DataFrame) -> float:
    """Inches: room for a label per policy beside the lines."""
    return max(3.1, 0.18 * (frame.policy.nunique() + 3))


def _contested(frame: DataFrame) -> DataFrame:
    """Rows of policies between the two where there is a gap worth closing."""
    by = ["setup", "block_size", "pool_group"]
    ends = frame.pivot_table(index=by, columns="base", values=RATE)
    if not {"lru", "belady"} <= set(ends.columns):
        return frame.iloc[:0]
    wide = ends.index[ends["belady"] - ends["lru"] >= WORTH_CLOSING]
    between = frame[frame.gap_closed.notna() & ~frame.base.isin(["lru", "belady"])]
    return between[between.set_index(by).index.isin(wide)]


def _gap_closed(part: DataFrame, styles: Mapping[str, Look]) -> Figure:
    """Dots are block sizes; the bar runs from the worst to the best of them, the number is the median of them."""
    from matplotlib.ticker import MultipleLocator, PercentFormatter

    groups = some(list(part.sort_values("pool_tokens").pool_group.unique()))
    medians = {str(policy): gap for policy, gap in part.groupby("policy").gap_closed.median().items()}
    policies = sorted(medians, key=medians.__getitem__)
    figure, axes = panels(len(groups), sharex=True, sharey=True, height=0.7 + 0.42 * len(policies))
    for panel, group in zip(axes, groups, strict=True):
        for index, policy in enumerate(policies):
            values = part[(part.pool_group == group) & (part.policy == policy)].gap_closed
            if values.empty:
                continue
            look, median = styles[policy], values.median()
            shown = values.clip(lower=FAR_BELOW)
            panel.plot([shown.min(), shown.max()], [index, index], color=look.color, linewidth=4, alpha=0.3)
            marker = "<" if shown.max() == FAR_BELOW else look.marker
            panel.plot(shown, [index] * len(shown), marker, color=look.color, alpha=0.75, linewidth=0)
            panel.annotate(
                signed_percent(median),
                (max(median, FAR_BELOW), index),
                xytext=(0, 6),
                textcoords="offset points",
                ha="left" if median < FAR_BELOW else "center",
                fontsize=8.5,
                color=look.color,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
        panel.axvline(0, color=looks(["lru"])["lru"].color, linewidth=1.4)
        panel.axvline(1, color=looks(["belady"])["belady"].color, linewidth=1.4, linestyle="--")
        panel.set(title=f"pool {group}", ylim=(-0.6, len(policies) - 0.3))
        panel.set_yticks(range(len(policies)), policies)
        panel.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        panel.xaxis.set_major_locator(MultipleLocator(0.5))
        panel.set_xlim(FAR_BELOW - 0.15, 1.15)
    several = part.block_size.nunique() > 1
    marks = "a mark per block size, a bar from worst to best, the number is their median" if several else ""
    cut = (part.gap_closed < FAR_BELOW).any()
    below = f"marks at the left edge lie below {signed_percent(FAR_BELOW)}" if cut else ""
    figure.supxlabel(
        "share of the gap in token hit rate between LRU (0 %) and Belady (100 %) closed\n"
        + "; ".join(filter(None, (marks, below))),
        fontsize=9.5,
    )
    return figure


def _finish(figure: Figure, axes: Sequence[Axes], parts: Sequence[tuple[DataFrame, str]]) -> None:
    """Lines first, then one look at all of them for the scale, then the labels, which need the scale."""
    from matplotlib.ticker import PercentFormatter

    axes[0].set_ylabel("token hit rate (of prompt tokens)")
    axes[0].yaxis.set_major_formatter(PercentFormatter(1))
    ends = [_lines(panel, part, x) for panel, (part, x) in zip(axes, parts, strict=True)]
    for panel in axes:
        panel.margins(x=0.1)
    label_room = "infinite cache "
    axes[-1].annotate(label_room, (1.03, 0.5), xycoords="axes fraction", fontsize=9, alpha=0)  # room for the labels
    figure.draw_without_rendering()
    label_ends(axes[-1], ends[-1])


def _lines(axes: Axes, part: DataFrame, x: str) -> list[tuple[str, float, float, str]]:
    ends = []
    for policy, look in looks(part.policy).items():
        line = part[part.policy == policy].sort_values(x)
        axes.plot(line[x], line[RATE], color=look.color, marker=look.marker, linestyle=look.dashes)
        ends.append((policy, line[x].iloc[-1], line[RATE].iloc[-1], look.color))
    ceiling = part.groupby(x, as_index=False)[[CEILING]].max()
    axes.plot(ceiling[x], ceiling[CEILING], color=BLACK, linestyle=(0, (5, 2)), linewidth=1.2)
    ends.append(("infinite cache", ceiling[x].iloc[-1], ceiling[CEILING].iloc[-1], BLACK))
    return ends


def _ticks(axes: Axes, ticks: Sequence[tuple[float, str]]) -> None:
    axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.set_xticks([], minor=True)


def _pool_text(row: Any) -> str:
    text = thousands(row.pool_tokens)
    return f"{text}\n({row.pool_group})" if row.pool_group.endswith("%") else text
