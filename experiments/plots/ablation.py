"""Curves of a kernel sweep: against whatever was swept, one line for each combination of the rest.

Compiled points show what the compiler made; timed points show time, with the 20 % to 80 % band, and share of the
ceiling. Splits against batch and context have a figure of their own. A line that comes from a model says so.

Takes the frame of `experiments.ablation.report`; knows nothing of records or folders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from experiments.plots.style import BLUE, BROWN, GREEN, GREY, ORANGE, PINK, RED, SKY, VIOLET, label_ends, panels, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

COLORS = (BLUE, ORANGE, GREEN, PINK, RED, SKY, BROWN, VIOLET)
MARKERS = "os^Dv<>P"
MOST_LINES = 8
MOST_PANELS = 4
NUMBERS = (
    "block_size", "num_splits", "context", "batch", "query_len", "shared_prefix", "head_dim", "gqa_ratio",
    "tile_kv", "tile_q", "num_stages", "num_warps", "num_kv_heads",
)  # fmt: skip
WORDS = ("variant", "op", "kernel", "dtype", "kv_dtype", "scales", "placement")
NAMES = {
    "block_size": "block size (tokens)", "num_splits": "splits", "context": "context (tokens)", "batch": "batch",
    "query_len": "query tokens per request", "shared_prefix": "shared prefix (tokens)", "head_dim": "head dim",
    "gqa_ratio": "query heads per KV head", "num_kv_heads": "KV heads", "kv_dtype": "cache",
}  # fmt: skip


def draw_ablation(frame: DataFrame) -> dict[str, Figure]:
    """Figures by file name. `frame`: one row per point; columns as `experiments.kernel_ablation` records them."""
    swept = swept_axes(frame)
    numbers = [name for name in swept if name in NUMBERS]
    if not numbers:
        return {}
    timed = "p50_us" in frame and bool(frame.p50_us.notna().any())
    with paper():
        if "num_splits" in numbers and len(numbers) > 1:
            return {"splits": _splits(frame, timed)}
        x = numbers[0]
        draw = _timed if timed else _compiled
        return {f"{'time' if timed else 'compiled'}_by_{x}": draw(frame, x, [name for name in swept if name != x])}


def swept_axes(frame: DataFrame) -> list[str]:
    """What differs between the points, in the order a reader should be told."""
    return [name for name in (*NUMBERS, *WORDS) if name in frame and frame[name].nunique(dropna=False) > 1]


def _compiled(frame: DataFrame, x: str, others: Sequence[str]) -> Figure:
    frame = frame.assign(
        in_flight=frame.bytes_in_flight / 1024,
        per_key=frame.loop_instructions / frame.tile_kv.astype(float),
        shared=frame.shared_bytes / 1024,
        code=frame.code_bytes / 1024,
    )
    figure, axes = panels(3, 2, width=3.0, height=2.35, sharex=True)
    shown = [
        ("registers", "Registers per thread", None),
        ("occupancy", "Occupancy: resident warps", None),
        ("in_flight", "KiB in flight per processor", ("needed for full bandwidth", frame.bytes_needed.max() / 1024)),
        ("per_key", "Inner loop: instructions per key", None),
        ("shared", "Shared memory per program (KiB)", None),
        ("code", "Code (KiB)", None),
    ]
    for panel, (column, title, line) in zip(axes, shown, strict=True):
        _lines(panel, frame, x, others, column)
        top = max(frame[column].max(), line[1] if line else 0)
        panel.set(title=title, ylim=(0, 1.12 * max(top, 1e-9)))
        if line:
            panel.axhline(line[1], color=GREY, linestyle="--", linewidth=1.2)
            panel.annotate(line[0], (0.02, line[1]), (0, 3), xycoords=("axes fraction", "data"),
                           textcoords="offset points", fontsize=8, color=GREY)  # fmt: skip
    _percent(axes[1])
    _axis(figure, axes[3:], frame, x)
    _legend(figure, axes[0])
    spills = int(frame.spills.sum())
    figure.suptitle(
        f"{_device(frame)}. Spills: {spills} bytes in {len(frame)} points. Compiled, not run.", fontsize=9.5
    )
    return figure


def _timed(frame: DataFrame, x: str, others: Sequence[str]) -> Figure:
    figure, axes = panels(2, width=4.2)
    share, time = axes
    _lines(share, frame, x, others, "share_of_ceiling")
    share.set(title="Share of the ceiling measured in the same run", ylim=(0, 1.05))
    _percent(share)
    _lines(time, frame, x, others, "p50_us", band=True)
    ends = []
    for name in baselines_of(frame):
        best = frame.groupby(x)[f"{name}_us"].min().dropna()
        places = _places(frame, x, best.index)
        time.plot(places, best, color=GREY, linestyle=":", linewidth=1.2)
        ends.append((name, places[-1], float(best.iloc[-1]), GREY))
    time.set(title="Time per call (µs, median, 20–80 % band)", ylim=(0, 1.12 * time.dataLim.ymax))
    _axis(figure, axes, frame, x)
    _legend(figure, share)
    figure.suptitle(_device(frame), fontsize=9.5)
    if ends:
        room = max((name for name, *_ in ends), key=len)
        time.annotate(f"{room}  ", (1.03, 0.5), xycoords="axes fraction", fontsize=9, alpha=0)
        figure.draw_without_rendering()
        label_ends(time, ends)
    return figure


def _splits(frame: DataFrame, timed: bool) -> Figure:
    """A panel per context, a line per batch; the star is what the rule chose."""
    column = "p50_us" if timed else "walk"
    contexts = sorted(frame.context.unique())[:MOST_PANELS]
    figure, axes = panels(len(contexts), width=3.1, sharex=True)
    batches = sorted(frame.batch.unique())[:MOST_LINES]
    for panel, context in zip(axes, contexts, strict=True):
        for batch, color, marker in zip(batches, COLORS, MARKERS, strict=False):
            part = frame[(frame.context == context) & (frame.batch == batch)]
            fixed = part[part.num_splits.notna()].sort_values("num_splits")
            panel.plot(fixed.num_splits, fixed[column], color=color, marker=marker, label=f"batch {batch}")
            chosen = part[part.num_splits.isna()]
            panel.plot(chosen.splits, chosen[column], "*", color=color, markersize=13, markeredgecolor="black",
                       markeredgewidth=0.6, zorder=4)  # fmt: skip
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=10 if timed else 2)
        ticks = sorted({*frame.num_splits.dropna().astype(int)})
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.set_xticks([], minor=True)
        panel.set(title=f"context {context:,}", xlabel="splits (★ what the rule chose)")
    axes[0].set_ylabel("median time per call (µs)" if timed else "key tiles walked in a row\n(model, not measured)")
    _legend(figure, axes[0])
    figure.suptitle(_device(frame), fontsize=9.5)
    return figure


def _lines(
    panel: Axes, frame: DataFrame, x: str, others: Sequence[str], column: str, band: bool = False
) -> list[tuple[str, float, float, str]]:
    ends = []
    groups = [("", frame)] if not others else [(_text(others, key), part) for key, part in _groups(frame, others)]
    for index, (text, part) in enumerate(groups[:MOST_LINES]):
        part = part.assign(place=_places(frame, x, part[x])).sort_values("place")
        color = COLORS[index]
        panel.plot(part.place, part[column], color=color, marker=MARKERS[index], label=text or None)
        if band:
            panel.fill_between(part.place, part.p20_us, part.p80_us, color=color, alpha=0.2, linewidth=0)
        ends.append((text, float(part.place.iloc[-1]), float(part[column].iloc[-1]), color))
    return ends


def _groups(frame: DataFrame, others: Sequence[str]) -> list[tuple[Any, DataFrame]]:
    return list(frame.groupby(list(others), dropna=False, sort=True))


def _text(others: Sequence[str], key: Any) -> str:
    keys = key if isinstance(key, tuple) else (key,)
    parts = []
    for name, value in zip(others, keys, strict=True):
        missing = value is None or value != value
        value = int(value) if isinstance(value, float) and not missing and value == int(value) else value
        parts.append(str(value) if name in WORDS else f"{NAMES.get(name, name)} {'auto' if missing else value}")
    return ", ".join(parts)


def _places(frame: DataFrame, x: str, values: Any) -> list[float]:
    """Points of the sweep at equal distances: sizes grow by factors, and 24 should not hide behind 32."""
    order = sorted(frame[x].dropna().unique())
    return [float(order.index(value)) if value == value else -1.0 for value in values]


def _axis(figure: Figure, axes: Sequence[Axes], frame: DataFrame, x: str) -> None:
    values = sorted(frame[x].dropna().unique())
    size = 8.5 if len(values) > 8 else 9.5
    for panel in axes:
        panel.set_xticks(range(len(values)), [f"{value:g}" for value in values], fontsize=size)
        panel.set_xlabel(NAMES.get(x, x.replace("_", " ")))


def _percent(panel: Axes) -> None:
    from matplotlib.ticker import PercentFormatter

    panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _legend(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False, fontsize=9)


def baselines_of(frame: DataFrame) -> list[str]:
    """Names of the baselines that have a time in some row."""
    ours = {"p20", "p50", "p80", "host", "model_floor"}
    names = [c.removesuffix("_us") for c in frame.columns if c.endswith("_us") and not c.endswith("_host_us")]
    return [name for name in names if name not in ours and frame[f"{name}_us"].notna().any()]


def _device(frame: DataFrame) -> str:
    first = frame.iloc[0]
    fixed: list[Callable[[], str]] = [
        lambda: str(first.op) if frame.op.nunique() == 1 else "",
        lambda: str(first.variant) if frame.variant.nunique() == 1 else "",
        lambda: f"batch {first.batch}" if frame.batch.nunique() == 1 else "",
        lambda: f"context {first.context:,}" if frame.context.nunique() == 1 else "",
        lambda: f"{first.num_kv_heads * first.gqa_ratio}/{first.num_kv_heads} heads × {first.head_dim}",
        lambda: str(first["dtype"]) if frame["dtype"].nunique() == 1 else "",
    ]
    return ", ".join(text for text in [str(first.device).removesuffix(", not run"), *(f() for f in fixed)] if text)
