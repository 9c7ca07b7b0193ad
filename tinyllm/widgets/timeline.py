"""Look at a session: what each call reused, forwarded and gave up, step by step.

`explorer(events, tokenizer)` is a slider over the events of a `Recorder`, and a box for
a prompt that might come next; its static twins are `still(events, tokenizer, step)`, a
picture, and `told` with the same arguments, the same in words. Steps count from 0, and
from 1 where a reader sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import ipywidgets as widgets
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tinyllm.decode.session import common_prefix
from tinyllm.errors import TokenizationError, UsageError
from tinyllm.text.stream import after_bos
from tinyllm.widgets.picture import BLUE, GREY, ORANGE, figure, png, pre, shown, styled
from tinyllm.widgets.recorder import Event
from tinyllm.widgets.words import Words
from tinyllm.widgets.written import written

ROOM = 84  # characters with room beside each other in the picture
LONGEST = 6  # characters of a token in the picture
EDGE = 4  # tokens drawn at each end of a run, if there is room
QUOTED = 44  # characters of a run in the words
WIDTH, HEIGHT = 7.2, 2.15  # inches
LOOKS: dict[str, dict[str, Any]] = {
    "asked": {"facecolor": "white", "edgecolor": GREY},
    "kept": {"facecolor": "#CFE3F1", "edgecolor": BLUE},
    "forwarded": {"facecolor": "white", "edgecolor": ORANGE, "hatch": "////"},
    "left": {"facecolor": "#EEE", "edgecolor": "#AAA", "hatch": "....", "ls": "--"},
}
LEGEND = {
    "kept": "kept: not computed again",
    "forwarded": "forwarded now",
    "left": "given up, or left beyond the end",
}


class Run(NamedTuple):
    """Neighbouring positions, first <= p < stop, that look the same in each row.

    A row's look is a name of `LOOKS`, or empty where the row has nothing.
    """

    first: int
    stop: int
    looks: tuple[str, ...]


def rows_of(event: Event) -> tuple[tuple[int, ...], ...]:
    """Return the ids of the rows: asked (from `start`), held before, in memory now."""
    return event.asked, event.before, event.after + event.beyond


def runs(event: Event) -> list[Run]:
    """Return the positions of an event, from 0 on, in as few runs as can be."""
    asked, before, memory = map(len, rows_of(event))
    last = max(event.start + asked, before, memory)

    def looks(p: int) -> tuple[str, ...]:
        kept = p < event.kept
        given = "asked" if 0 <= p - event.start < asked else ""
        had = "kept" if kept else "left"
        now = "kept" if kept else "forwarded" if p < len(event.after) else "left"
        return given, had if p < before else "", now if p < memory else ""

    groups = [list(group) for _, group in groupby(range(last), looks)]
    return [Run(group[0], group[-1] + 1, looks(group[0])) for group in groups]


def told(events: Sequence[Event], tokenizer: Any, step: int) -> str:
    """One call in words: how many positions it reused, forwarded and gave up, which."""
    event = _event(events, step)
    n = len(event.asked)
    given = f" {n} id" + "s" * (n > 1) if n else ""
    before, end = len(event.before), len(event.after)
    lines = [f"step {step + 1} of {len(events)}: {event.call}{given}"]
    lines.append(f"  held before: {before}, held now: {end} of {event.n_ctx}")
    parts = {
        "reused": (event.reused, 0, event.after),
        "forwarded": (event.forwarded, event.kept, event.after),
        "given up": (event.given_up, before - event.given_up, event.before),
    }
    for name, (count, first, ids) in parts.items():
        which = _quoted(tokenizer, ids, first, count)
        if name == "reused" and count < event.kept:  # extend, rewind: no search
            which = f" by a search, {event.kept} kept without one"
        lines.append(f"  {name + ':':10} {count:3}{which}")
    left = len(event.beyond)
    lines.append(f"  beyond the end: {left} in memory" + ", never read" * (left > 0))
    return "\n".join(lines)


def _quoted(tokenizer: Any, ids: Sequence[int], first: int, count: int) -> str:
    """Where some ids stand and how they read, cut in the middle if long."""
    if not count:
        return ""
    last = first + count - 1
    where = f"position {first}" if count == 1 else f"positions {first} to {last}"
    text = "".join(written(tokenizer, i) for i in ids[first : last + 1])
    if len(text) > QUOTED:
        text = f"{text[: QUOTED // 2]} … {text[-QUOTED // 2 :]}"
    return f", {where}: {text}"


def _event(events: Sequence[Event], step: int) -> Event:
    if not events:
        raise UsageError("nothing was recorded: call feed or extend first")
    if not 0 <= step < len(events):
        raise UsageError(f"step is {step}; expected 0 to {len(events) - 1}")
    return events[step]


class Cell(NamedTuple):
    """A column of the picture: a position, or None for some that are left out."""

    position: int | None
    texts: tuple[str, ...]
    looks: tuple[str, ...]
    x: float
    size: float


def cells(event: Event, tokenizer: Any) -> list[Cell]:
    """Return the columns from left to right: of a long run its ends, and a count."""
    for edge in range(EDGE, 0, -1):
        found, x = [], 0.0
        for position, texts, looks in _columns(event, tokenizer, edge):
            size = max(map(len, [*texts, str(position or 0)])) + 1.0
            found.append(Cell(position, texts, looks, x, size))
            x += size
        if x <= ROOM:
            break
    return found


def _columns(
    event: Event, tokenizer: Any, edge: int
) -> Iterator[tuple[int | None, tuple[str, ...], tuple[str, ...]]]:
    """Yield position, texts and looks of each column, `edge` at each end of a run."""
    starts = (event.start, 0, 0)
    rows = list(zip(rows_of(event), starts, strict=True))
    for first, stop, looks in runs(event):
        left_out = max(0, stop - first - 2 * edge)
        for p in range(first, stop):
            if left_out < 2 or p < first + edge or p >= stop - edge:
                texts = [
                    _short(written(tokenizer, ids[p - at])) if look else ""
                    for (ids, at), look in zip(rows, looks, strict=True)
                ]
                yield p, tuple(texts), looks
            elif p == first + edge:
                yield None, tuple(f"… {left_out} …" * bool(k) for k in looks), looks


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def draw(events: Sequence[Event], tokenizer: Any, step: int) -> Figure:
    """Three rows of cells: what was asked, what was held, what lies in memory now."""
    event = _event(events, step)
    found = cells(event, tokenizer)
    with styled():
        fig = figure(WIDTH, HEIGHT)
        axes = fig.subplots()
        axes.set_axis_off()
        end = found[-1].x + found[-1].size if found else 0
        axes.set(xlim=(-12, max(ROOM, end) + 1), ylim=(-3.9, 1.0))
        counts = f"reused {event.reused}, forwarded {event.forwarded}"
        title = f"step {step + 1}: {event.call} · {counts}, gave up {event.given_up}"
        axes.set_title(title, fontsize=9, loc="left")
        for row, name in enumerate(("asked", "held before", "in memory")):
            axes.text(-12, -row, name, va="center", fontsize=8, color=GREY)
        if not event.asked:
            style: Any = {"va": "center", "fontsize": 8, "color": GREY}
            axes.text(0.1, 0, f"{event.call.split()[0]} takes no ids", **style)
        for cell in found:
            _draw_cell(axes, cell)
        _draw_end(axes, found, len(event.after))
        _legend(axes)
    return fig


def _draw_cell(axes: Axes, cell: Cell) -> None:
    middle = cell.x + cell.size / 2
    style: Any = {"ha": "center", "va": "center", "parse_math": False}
    for row, (text, look) in enumerate(zip(cell.texts, cell.looks, strict=True)):
        if not look:
            continue
        place = (cell.x + 0.1, 0.72, cell.size - 0.2, -row - 0.36)
        axes.bar(*place, align="edge", **LOOKS[look])
        back = {"facecolor": LOOKS[look]["facecolor"], "lw": 0, "pad": 0.8}
        font: Any = {"family": "monospace", "fontsize": 7, "bbox": back}
        axes.text(middle, -row, text, **font, **style)
    if cell.position is not None:
        axes.text(middle, 0.6, str(cell.position), fontsize=6.5, color=GREY, **style)


def _draw_end(axes: Axes, found: list[Cell], end: int) -> None:
    """A thick line where the held positions end, in the lowest row."""
    held = [cell for cell in found if cell.position is not None and cell.position < end]
    x = held[-1].x + held[-1].size if held else 0.0
    axes.plot([x, x], [-2.5, -1.5], color="black", lw=2.2)
    side = "center" if x > 6 else "left"
    axes.text(x, -2.75, f"end: {end} held", ha=side, va="center", fontsize=7)


def _legend(axes: Axes) -> None:
    for x, (look, words) in zip((-12, 19, 42), LEGEND.items(), strict=True):
        axes.bar(x, 0.5, 4, -3.75, align="edge", **LOOKS[look])
        axes.text(x + 5, -3.5, words, va="center", fontsize=8, color=GREY)


def still(events: Sequence[Event], tokenizer: Any, step: int) -> Image:
    """The picture as a cell shows it, with the words of `told` as alt text."""
    return shown(draw(events, tokenizer, step), told(events, tokenizer, step))


def answer(event: Event, tokenizer: Any, text: str) -> str:
    """What feed would do with a text after this event; nothing is forwarded."""
    try:
        ids = after_bos(tokenizer, tokenizer.encode(text))
    except TokenizationError as error:
        return str(error)
    if len(ids) > event.n_ctx:
        return f"{len(ids)} ids: feed would refuse more than {event.n_ctx}"
    common = common_prefix(event.after, ids)
    shared = min(common, len(ids) - 1)
    n = f"{len(ids)} id" + "s" * (len(ids) > 1)
    line = f"{n}: feed would reuse {shared} and forward {len(ids) - shared}"
    if not event.after:
        return f"{line}\nnothing is held, so all of it is new"
    if common == len(ids):
        return f"{line}\nall of it is held; the last id is forwarded all the same"
    if common == len(event.after):
        return f"{line}\nit goes on where what is held ends"
    held, new = (written(tokenizer, i[common]) for i in (event.after, ids))
    return f"{line}\nthey part at position {common}: held {held}, new {new}"


def explorer(
    events: Sequence[Event], tokenizer: Any, step: int = 0, text: str = ""
) -> widgets.VBox:
    """A slider over the calls, and a box for a prompt; words and picture follow."""
    _event(events, step)
    wide = widgets.Layout(width="720px")
    slider = widgets.IntSlider(
        value=step + 1, min=1, max=max(2, len(events)), description="step",
        disabled=len(events) == 1, continuous_update=False,
    )  # fmt: skip
    box = widgets.Textarea(text, description="new prompt", layout=wide, rows=5)
    words, picture = Words(), widgets.Image(format="png", width=720)
    reply = widgets.HTML()

    def answered(_: object = None) -> None:
        line = answer(events[slider.value - 1], tokenizer, box.value)
        reply.value = pre("answer", line)

    def redraw(_: object = None) -> None:
        words.value = pre("timeline", told(events, tokenizer, slider.value - 1))
        answered()
        picture.value = png(draw(events, tokenizer, slider.value - 1))

    slider.observe(redraw, "value")
    box.observe(answered, "value")
    redraw()
    return widgets.VBox([slider, words, picture, box, reply])
