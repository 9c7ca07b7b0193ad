"""Look at an ablation: what each arm reached under each condition, with intervals.

`draw(rows)` has a band for each condition, a line in it for each arm, and a column for
each metric, those of syntax apart from those of sense. `told(rows)` says the same in
words, `still(rows)` is the picture with those words, and `explorer(rows)` lets a reader
choose one condition or one metric. `rows` are those of `evaluate.table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import ipywidgets as widgets
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tinyllm.errors import UsageError
from tinyllm.evaluate.statistics import spread
from tinyllm.evaluate.table import METRICS, SYNTAX, Row
from tinyllm.widgets import picture as look
from tinyllm.widgets.words import Words

WIDTH = 7.2  # all lengths here are in inches, from the left and from the top
LEFT, RIGHT = 1.5, 0.24  # beside the columns: names, and half of the last tick
HEAD, FOOT = 0.6, 0.26
LINE, PAD = 0.185, 0.05  # of an arm or a condition's name; around a band
GAP = 0.27  # between columns; between syntax and sense it is twice as wide
# an arm is told by its shape, by its colour and by its name
LOOKS = {
    "free": {"marker": "o", "color": look.ORANGE},
    "instructed": {"marker": "s", "color": look.GREEN},
    "retry": {"marker": "^", "color": look.GREY},
    "mask": {"marker": "D", "color": look.BLUE},
}
OTHER = {"marker": "X", "color": "black"}
ALL = "all"


def told(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> str:
    """The counts of each arm in words, with the 95 % interval of the share."""
    groups = _groups(_chosen(rows, metrics))
    lines = []
    for condition, band in _bands(rows):
        lines.append(condition)
        for row in band:
            lines.append(f"  {row.arm}, {row.tasks} task{'s' * (row.tasks > 1)}")
            for name, members in groups.items():
                said = ", ".join(_said(row, metric) for metric in members)
                lines.append(f"    {name + ':':7} {said}")
    return "\n".join(lines)


def _said(row: Row, metric: str) -> str:
    count = row.counts[metric]
    return f"{METRICS[metric]} {count} ({spread(count, row.tasks)} %)"


def draw(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> Figure:
    """A dot for each share and a bar for its 95 % interval; all metrics, or some.

    UsageError if there are no rows or a metric is none of METRICS.
    """
    chosen = _chosen(rows, metrics)
    bands = _bands(rows)
    lines = len(rows) + len(bands)
    height = HEAD + FOOT + LINE * lines + 2 * PAD * len(bands)
    with look.styled():
        fig = look.figure(WIDTH, height)
        fig.set_layout_engine("none")  # the places below are exact
        axes = fig.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        axes.set_axis_off()
        columns = _columns(chosen)
        y = HEAD
        for number, (condition, band) in enumerate(bands):
            end = y + LINE * (len(band) + 1) + 2 * PAD
            axes.axhspan(y, end, color="#F1F1F1" if number % 2 == 0 else "white")
            _scale(axes, columns, y, end)
            y += PAD + LINE
            axes.text(0.1, y - LINE / 2, condition, va="center", fontweight="bold")
            for row in band:
                _line(axes, row, columns, y + LINE / 2)
                y += LINE
            y = end
        _head(axes, chosen, columns)
        _foot(axes, columns, y + 0.06)
    return fig


Columns = dict[str, tuple[float, float]]  # metric -> where 0 % and 100 % stand


def _columns(chosen: Sequence[str]) -> Columns:
    """The columns from left to right, as wide as there is room."""
    parted = 0 < sum(metric in SYNTAX for metric in chosen) < len(chosen)
    gaps = GAP * (len(chosen) - 1 + parted)
    width = (WIDTH - LEFT - RIGHT - gaps) / len(chosen)
    columns: Columns = {}
    x, before = LEFT, chosen[0]
    for metric in chosen:
        x += GAP * ((metric in SYNTAX) != (before in SYNTAX))
        columns[metric] = (x, x + width)
        x, before = x + width + GAP, metric
    return columns


def _line(axes: Axes, row: Row, columns: Columns, y: float) -> None:
    """The name of an arm, and its dot and bar in each column."""
    style: Any = LOOKS.get(row.arm, OTHER)
    axes.plot(0.27, y, ls="", ms=4, **style)
    axes.text(0.42, y, row.arm, va="center", fontsize=8)
    grey: Any = {"fontsize": 7, "color": look.GREY}
    axes.text(LEFT - 0.22, y, str(row.tasks), va="center", ha="right", **grey)
    for metric, (zero, full) in columns.items():
        share, *bounds = (
            zero + (full - zero) * part
            for part in (row.share(metric), *row.interval(metric))
        )
        bar: Any = {"lw": 6, "alpha": 0.35, "solid_capstyle": "butt"}
        axes.plot(bounds, [y, y], color=style["color"], **bar)
        axes.plot(share, y, ls="", ms=4, **style)


def _scale(axes: Axes, columns: Columns, y: float, end: float) -> None:
    """Thin lines at 0, 50 and 100 %."""
    for zero, full in columns.values():
        for x in (zero, (zero + full) / 2, full):
            axes.plot([x, x], [y, end], color="#CCC", lw=0.6)


def _head(axes: Axes, chosen: Sequence[str], columns: Columns) -> None:
    """The names of the metrics, under a line for syntax and one for sense."""
    grey: Any = {"fontsize": 7, "color": look.GREY}
    axes.text(LEFT - 0.22, HEAD - 0.12, "tasks", va="center", ha="right", **grey)
    for name, members in _groups(chosen).items():
        zero, full = columns[members[0]][0], columns[members[-1]][1]
        bold: Any = {"ha": "center", "va": "center", "fontweight": "bold"}
        axes.text((zero + full) / 2, 0.16, name, **bold)
        axes.plot([zero, full], [0.3, 0.3], color="black", lw=1)
        for metric in members:
            middle = sum(columns[metric]) / 2
            axes.text(middle, HEAD - 0.14, METRICS[metric], ha="center", va="center")


def _foot(axes: Axes, columns: Columns, y: float) -> None:
    """The scale in words, under each column."""
    for zero, full in columns.values():
        ticks = {zero: "0", (zero + full) / 2: "50", full: "100 %"}
        for x, text in ticks.items():
            axes.text(x, y, text, ha="center", va="top", fontsize=7, color=look.GREY)


def still(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> Image:
    """The picture as a cell shows it, with the words of `told` as alt text."""
    return look.shown(draw(rows, metrics), told(rows, metrics))


def explorer(rows: Sequence[Row]) -> widgets.VBox:
    """A choice of condition and of metric; words and picture follow."""
    _chosen(rows, None)
    names = [condition for condition, _ in _bands(rows)]
    condition = widgets.Dropdown(options=[ALL, *names], description="condition")
    heads = [(ALL, ALL), *((head, metric) for metric, head in METRICS.items())]
    metric = widgets.Dropdown(options=heads, description="metric")
    words, picture = Words(), widgets.Image(format="png", width=720)

    def redraw(_: object = None) -> None:
        shown = [row for row in rows if condition.value in (ALL, row.condition)]
        chosen = None if metric.value == ALL else [metric.value]
        words.value = look.pre("ablation", told(shown, chosen))
        picture.value = look.png(draw(shown, chosen))

    condition.observe(redraw, "value")
    metric.observe(redraw, "value")
    redraw()
    return widgets.VBox([widgets.HBox([condition, metric]), picture, words])


def _chosen(rows: Sequence[Row], metrics: Sequence[str] | None) -> list[str]:
    """The metrics in the order of METRICS; UsageError if there is nothing to show."""
    if not rows:
        raise UsageError("there are no rows: measure at least one arm")
    wanted = list(METRICS) if metrics is None else list(metrics)
    if not wanted or not set(wanted) <= set(METRICS):
        raise UsageError(f"metrics are some of {', '.join(METRICS)}, not {wanted}")
    return [metric for metric in METRICS if metric in wanted]


def _bands(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows of each condition, in their order."""
    return [(name, list(band)) for name, band in groupby(rows, lambda r: r.condition)]


def _groups(chosen: Sequence[str]) -> dict[str, list[str]]:
    """The chosen metrics under "syntax" and "sense"; a group without any is absent."""
    syntax = [metric for metric in chosen if metric in SYNTAX]
    sense = [metric for metric in chosen if metric not in SYNTAX]
    return {k: v for k, v in (("syntax", syntax), ("sense", sense)) if v}
