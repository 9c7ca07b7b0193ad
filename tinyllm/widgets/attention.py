"""Look at attention: which tokens each position reads, and how much of each.

`explorer(trace, tokenizer)` has a slider for the layer, the head and the position; its
static twins are `still(trace, tokenizer, layer, head, position)`, a picture, and `told`
with the same arguments, the same in words. A trace comes from `tinyllm.model.trace`.
Layer, head and position count from 0, as the arrays do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from tinyllm.errors import UsageError
from tinyllm.model.layers import Array
from tinyllm.model.trace import Trace
from tinyllm.widgets.picture import BLUE, GREY, ORANGE, figure, png, pre, shown, styled
from tinyllm.widgets.words import Words
from tinyllm.widgets.written import written

LARGEST = 48  # tokens: more labels than this nobody can read
TOP = 6
LONGEST = 10  # characters of a token in the picture
ROWS, COLUMNS = 24, 16  # labels with room beside each other
WIDTH, HEIGHT, SIDE = 7.2, 4.1, 3.1  # inches; SIDE is the square of the pattern


@dataclass(frozen=True)
class Read:
    """One token that is read: its position, its text, and its share of the reading."""

    position: int
    text: str
    weight: float


def most_read(
    trace: Trace, tokenizer: Any, layer: int, head: int, position: int
) -> list[Read]:
    """What a position reads most, as told: the largest share first, the rest left out.

    Shares that show the same two decimals stand in the order of the text, and those
    that would show 0.00 are not listed.
    """
    pattern = _weights(trace, layer, head, position)
    row = [round(float(weight), 2) for weight in pattern[position, : position + 1]]
    order = sorted(range(len(row)), key=lambda i: -row[i])[:TOP]
    best = [i for i in order if row[i] > 0]
    texts = [written(tokenizer, trace.token_ids[i]) for i in best]
    return [Read(i, text, row[i]) for i, text in zip(best, texts, strict=True)]


def told(trace: Trace, tokenizer: Any, layer: int, head: int, position: int) -> str:
    """One position of one head in words: a line for each token it reads most."""
    found = most_read(trace, tokenizer, layer, head, position)
    reader = written(tokenizer, trace.token_ids[position])
    width = max((len(read.text) for read in found), default=0)
    lines = [f"layer {layer}, head {head}: position {position} ({reader}) reads"]
    for read in found:
        where = _distance(position - read.position)
        share = f"{read.weight:.2f} of [{read.position:2}]"
        lines.append(f"  {share} {read.text:{width}}  {where}")
    left = abs(1 - sum(read.weight for read in found))
    more = len(found) <= position
    lines.append(f"  {left:.2f} of all others" if more else "  and nothing else")
    return "\n".join(lines)


def _distance(steps: int) -> str:
    names = {0: "(itself)", 1: "(the one before)"}
    return names.get(steps, f"({steps} before)")


def _weights(trace: Trace, layer: int, head: int, position: int) -> Array:
    """The pattern (T, T) of a head; UsageError where the trace holds no such place."""
    n_layers, n_heads, n, _ = trace.attention.shape
    if n > LARGEST:
        raise UsageError(
            f"the trace has {n} tokens and the picture has room for {LARGEST}: "
            "trace a shorter text"
        )
    sizes = {"layer": (layer, n_layers), "head": (head, n_heads)}
    for name, (given, size) in (sizes | {"position": (position, n)}).items():
        if not 0 <= given < size:
            raise UsageError(f"{name} is {given}; expected 0 to {size - 1}")
    pattern: Array = trace.attention[layer, head]
    return pattern


def draw(trace: Trace, tokenizer: Any, layer: int, head: int, position: int) -> Figure:
    """The pattern of a head, one row framed, and beside it what that row reads most."""
    pattern = _weights(trace, layer, head, position)
    texts = [_short(written(tokenizer, i)) for i in trace.token_ids]
    with styled():
        fig = figure(WIDTH, HEIGHT)
        fig.set_layout_engine("none")  # places are known: nothing to work out
        left = _place(fig, 1.35, 0.55, SIDE, SIDE)
        _pattern(left, pattern, texts, position)
        left.set_title(f"layer {layer}, head {head}", fontsize=9, loc="left")
        right = _place(fig, 5.55, 1.75, 1.2, SIDE - 1.2)
        _bars(right, most_read(trace, tokenizer, layer, head, position))
        title = f"{texts[position]} [{position}] reads"
        right.set_title(title, fontsize=9, loc="right", parse_math=False)
    return fig


def _place(fig: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes at a place of the figure, in inches from its lower left corner."""
    box = (x / WIDTH, y / HEIGHT, width / WIDTH, height / HEIGHT)
    return fig.add_axes(box)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _pattern(axes: Axes, pattern: Array, texts: list[str], position: int) -> None:
    """Dark where much is read; hatched where nothing may be; the chosen row framed."""
    n = len(texts)
    axes.imshow(pattern, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    stairs = [(i + d - 0.5, i - 0.5) for i in range(n) for d in (1, 1)]
    corners = [(x, y + k % 2) for k, (x, y) in enumerate(stairs)]
    future = Polygon([*corners, (n - 0.5, -0.5)], fill=False, hatch="....", lw=0)
    future.set_edgecolor("#BBBBBB")
    axes.add_patch(future)
    frame: Any = {"fill": False, "edgecolor": ORANGE, "linewidth": 1.6}
    axes.add_patch(Rectangle((-0.5, position - 0.5), position + 1, 1, **frame))
    rows, columns = _labelled(n, ROWS, position), _labelled(n, COLUMNS, 0)
    names = [f"{texts[i]} [{i}]" for i in rows]
    ticks: dict[str, Any] = {"family": "monospace", "parse_math": False}
    axes.set_yticks(rows, names, fontsize=8.5, **ticks)
    axes.set_xticks(columns, [str(i) for i in columns], fontsize=8.5)
    chosen = axes.get_yticklabels()[rows.index(position)]
    chosen.set(color=ORANGE, weight="bold")
    axes.tick_params(length=0)
    axes.set_xlabel("position that is read")
    axes.set_ylabel("reads")


def _labelled(n: int, room: int, position: int) -> list[int]:
    """The positions that get a label: all, or every second or third, with this one."""
    step = -(-n // room)
    return [*range(position % step, n, step)]


def _bars(axes: Axes, found: list[Read]) -> None:
    found = found[::-1]
    axes.barh(range(len(found)), [read.weight for read in found], color=BLUE)
    for at, read in enumerate(found):
        label = f"{read.weight:.2f}"  # beside a full bar it stands in the margin
        axes.text(read.weight + 0.03, at, label, va="center", fontsize=8, color=GREY)
    names = [f"{_short(read.text)} [{read.position}]" for read in found]
    ticks: dict[str, Any] = {"family": "monospace", "parse_math": False}
    axes.set_yticks(range(len(found)), names, fontsize=8.5, **ticks)
    axes.set_ylim(len(found) - TOP - 0.6, len(found) - 0.4)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_xlabel("share of the reading")


def still(trace: Trace, tokenizer: Any, layer: int, head: int, position: int) -> Image:
    """The picture as a cell shows it, with the words of `told` as alt text."""
    fig = draw(trace, tokenizer, layer, head, position)
    return shown(fig, told(trace, tokenizer, layer, head, position))


def explorer(
    trace: Trace,
    tokenizer: Any,
    layer: int = 0,
    head: int = 0,
    position: int | None = None,
) -> widgets.VBox:
    """Sliders for layer, head and position; words and picture follow them.

    They open at the given place, or at the last position, which has most to read.
    """
    n_layers, n_heads, n, _ = trace.attention.shape
    place = (layer, head, n - 1 if position is None else position)
    _weights(trace, *place)  # a slider would move a place that is not there, silently
    sizes = {"layer": n_layers, "head": n_heads, "position": n}
    sliders = [
        widgets.IntSlider(
            value=at, min=0, max=size - 1, description=name, continuous_update=False
        )
        for at, (name, size) in zip(place, sizes.items(), strict=True)
    ]
    words = Words()
    picture = widgets.Image(format="png", width=720)

    def redraw(_: object = None) -> None:
        """The words first: they are there at once, and the picture takes a while."""
        layer, head, position = (slider.value for slider in sliders)
        text = told(trace, tokenizer, layer, head, position)
        words.value = pre("attention", text)
        picture.value = png(draw(trace, tokenizer, layer, head, position))

    for slider in sliders:
        slider.observe(redraw, "value")
    redraw()
    return widgets.VBox([*sliders, words, picture])
