"""What a joint sweep shows: every combination as a heat map per setting, and what each choice alone is worth.

Colour is the difference from the baseline, counted so that green is better; a combination that cannot be told from the
baseline has none. Takes the frames of `experiments.joint.differences`; knows nothing of records or folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from experiments.joint.differences import BETTER, ONE_SEED, UNCLEAR, WORSE
from experiments.joint.measures import MEASURES, Measure
from experiments.joint.table import Axes
from experiments.joint.words import setting_text
from experiments.plots.style import BLACK, BLUE, GREEN, GREY, RED, panels, paper, some
from experiments.sweep_report import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Panel
    from matplotlib.figure import Figure
    from pandas import DataFrame

COLOURS = {BETTER: GREEN, WORSE: RED}
MARKERS = "osD^v"
LEGEND = "mean over seeds; green: better than the baseline (framed), orange: worse, white: not distinguishable from it"
CHARACTERS_PER_INCH = 13
"""Of the legend's type."""


def draw_joint(points: DataFrame, effects: DataFrame, axes: Axes) -> dict[str, Figure]:
    """Figures by file name: "combinations", and "choices" where some choice has an alternative."""
    with paper():
        figures = {"combinations": _combinations(points, axes)}
        if len(effects):
            figures["choices"] = _choices(effects, axes)
    return figures


def _combinations(points: DataFrame, axes: Axes) -> Figure:
    settings = [group for _, group in points.groupby(axes.settings, dropna=False)]
    settings = some(settings)
    down, across = _rows_and_columns(points, axes)
    labels = [[" · ".join(map(str, key)) for key in keys] for keys in (down, across)]
    width = max(2.4, 1.05 * len(across) + 0.3)
    height = 0.27 * len(down) + 1.15
    figure, panel_list = panels(len(settings), len(MEASURES), width=width, height=height)
    for i, measure in enumerate(MEASURES):
        most = max(float(points[f"{measure.key}_difference"].abs().max()), 1e-12)
        for j, part in enumerate(settings):
            panel = panel_list[i * len(settings) + j]
            _heat(panel, part, measure, axes, (down, across), most)
            unit = f" ({measure.unit})"
            panel.set_title(f"{measure.title}{unit}\n{setting_text(dict(part.iloc[0]), axes)}", fontsize=9)
            panel.set_yticks(range(len(down)), labels[0] if j == 0 else [], fontsize=8.5)
            panel.set_xticks(range(len(across)), [text.replace(" · ", "\n") for text in labels[1]], fontsize=8)
    figure.supxlabel(fill(LEGEND, int(CHARACTERS_PER_INCH * figure.get_figwidth())), fontsize=9)
    return figure


def _rows_and_columns(points: DataFrame, axes: Axes) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Choices on the first axis go down, best on average first; combinations of the others across."""
    first, *rest = axes.policies
    order = points.groupby(first)[MEASURES[0].key].mean().sort_values(ascending=False).index
    found: set[tuple[str, ...]] = set(points[rest].itertuples(index=False, name=None)) if rest else {("",)}
    across = sorted(found)
    usual = tuple(axes.baseline[name] for name in rest)
    across.sort(key=lambda key: (sum(a != b for a, b in zip(key, usual, strict=False)), key))
    return [(str(name),) for name in order], across


def _heat(
    panel: Panel,
    part: DataFrame,
    measure: Measure,
    axes: Axes,
    places: tuple[Sequence[tuple[str, ...]], Sequence[tuple[str, ...]]],
    most: float,
) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    first, *rest = axes.policies
    down, across = places
    panel.set(xlim=(-0.5, len(across) - 0.5), ylim=(len(down) - 0.5, -0.5))
    panel.grid(False)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
    for row in rows_of(part):
        y, x = down.index((row[first],)), across.index(tuple(row[name] for name in rest) or ("",))
        verdict, change = row[f"{measure.key}_verdict"], row[f"{measure.key}_difference"]
        if verdict == ONE_SEED:
            verdict = BETTER if measure.gain(change) > 0 else WORSE
        base = to_rgb(COLOURS.get(verdict, "white"))
        share = 0.15 + 0.55 * min(abs(change) / most, 1.0)
        colour = tuple(1 - share * (1 - c) for c in base) if verdict in COLOURS else "white"
        panel.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="#E4E4E4", linewidth=0.8))
        told = BLACK if verdict != UNCLEAR else GREY
        panel.text(x, y, measure.short(row[measure.key]), ha="center", va="center", fontsize=8.5, color=told)
        if row["is_baseline"]:
            panel.add_patch(
                Rectangle((x - 0.46, y - 0.42), 0.92, 0.84, facecolor="none", edgecolor=BLACK, linewidth=1.4, zorder=3)
            )


def _choices(effects: DataFrame, axes: Axes) -> Figure:
    """One line per choice: how far it moves each measure, with its interval; one mark per setting."""
    names = list(dict.fromkeys(zip(effects.axis, effects.choice, strict=True)))
    settings = [key for key, _ in effects.groupby(axes.settings, dropna=False)]
    figure, panel_list = panels(len(MEASURES), height=0.75 + 0.36 * len(names), sharey=True)
    for panel, measure in zip(panel_list, MEASURES, strict=True):
        panel.axvline(0, color=BLUE, linewidth=1.4)
        for j, key in enumerate(settings):
            part = effects[(effects[axes.settings].apply(tuple, axis=1)) == key]
            for row in rows_of(part):
                y = names.index((row["axis"], row["choice"])) + 0.5 * ((j + 0.5) / len(settings) - 0.5)
                _mark(panel, row, measure, y, MARKERS[j % len(MARKERS)])
        better = "right" if measure.more_is_better else "left"
        panel.set_title(measure.title)
        panel.set_xlabel(f"difference ({measure.difference_unit}); {better} is better", fontsize=8.5)
        panel.set_ylim(len(names) - 0.5, -0.5)
        for border in range(1, len(names)):
            if names[border][0] != names[border - 1][0]:
                panel.axhline(border - 0.5, color=GREY, linewidth=0.7)
    panel_list[0].set_yticks(
        range(len(names)), [f"{choice} (for {axes.baseline[axis]})" for axis, choice in names], fontsize=8.5
    )
    _legend(figure, effects, axes, settings)
    return figure


def _mark(panel: Panel, row: dict[str, Any], measure: Measure, y: float, marker: str) -> None:
    key = measure.key
    scale = 100 if measure.unit == "%" else 1
    mean, low, high = (row[f"{key}_{name}"] for name in ("difference", "low", "high"))
    if mean is None:
        return
    verdict = row[f"{key}_verdict"]
    colour = COLOURS.get(verdict, GREY)
    if low is not None:
        panel.plot([scale * low, scale * high], [y, y], color=colour, linewidth=1.5, alpha=0.6, solid_capstyle="butt")
    filled = colour if verdict in COLOURS else "white"
    panel.plot([scale * mean], [y], marker, color=colour, markerfacecolor=filled, markersize=4.5)


def _legend(figure: Figure, effects: DataFrame, axes: Axes, settings: Sequence[Any]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for j, key in enumerate(settings):
        told = setting_text(dict(zip(axes.settings, key, strict=True)), axes)
        handles.append(Line2D([], [], marker=MARKERS[j % len(MARKERS)], color=BLACK, linewidth=0, label=told))
    for colour, text in ((GREEN, "better"), (RED, "worse"), (GREY, "not distinguishable")):
        handles.append(Line2D([], [], color=colour, linewidth=2, label=text))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6), frameon=False, fontsize=8.5)
