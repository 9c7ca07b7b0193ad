"""The map of the course: the package in the order of the data, and its chapters.

`draw()` is the picture, `told()` the same in words; both come from PARTS and ARROWS.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from tinyllm.widgets.picture import BLUE, GREEN, GREY, ORANGE, figure, shown, styled


class Part(NamedTuple):
    """One folder of the package: what it turns into what, where, and on which spot."""

    what: str
    chapters: str
    x: float
    y: float


PARTS = {
    "text": Part("text ↔ token ids", "01", 0, 1),
    "model": Part("token ids → logits", "02, 04", 1, 1),
    "decode": Part("logits → next tokens", "03, 04, 08", 2, 1),
    "agent": Part("tokens → actions", "00, 06, 09", 3, 1),
    "server": Part("a model elsewhere", "06", 4, 1),
    "formats": Part("files ↔ weights", "11", 0, 0),
    "train": Part("data → weights", "10", 1, 0),
    "grammar": Part("which tokens are legal", "05", 2, 0),
    "verify": Part("does it still hold?", "04, 08", 3, 0),
    "evaluate": Part("how often is it right?", "07", 4, 0),
}
OUTSIDE = ("server", "formats", "evaluate")  # not part of what the course teaches
ARROWS = [
    ("text", "model"),
    ("model", "decode"),
    ("decode", "agent"),
    ("server", "agent"),
    ("formats", "model"),
    ("train", "model"),
    ("grammar", "decode"),
    ("decode", "verify"),
    ("agent", "evaluate"),
]
WIDTH, HEIGHT, STEP_X, STEP_Y = 1.72, 0.9, 2.05, 1.5


def draw() -> Image:
    """The map as a cell shows it: boxes for folders, arrows for what flows on."""
    with styled():
        fig = figure(10.0, 3.0)
        axes = fig.subplots()
        axes.set_axis_off()
        axes.set_xlim(-0.1, 4 * STEP_X + WIDTH + 0.1)
        axes.set_ylim(-0.1, STEP_Y + HEIGHT + 0.1)
        for name, part in PARTS.items():
            _box(axes, name, part)
        for start, end in ARROWS:
            _arrow(axes, PARTS[start], PARTS[end])
    return shown(fig, told())


def _box(axes: Axes, name: str, part: Part) -> None:
    x, y = part.x * STEP_X, part.y * STEP_Y
    colour = GREEN if name in OUTSIDE else BLUE
    look: Any = {"facecolor": "white", "edgecolor": colour, "linewidth": 1.4}
    look["linestyle"] = "--" if name in OUTSIDE else "-"
    shape = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y), WIDTH, HEIGHT, boxstyle=shape, **look))
    middle = x + WIDTH / 2
    style: dict[str, Any] = {"ha": "center", "va": "center"}
    axes.text(middle, y + 0.68, name, weight="bold", color=colour, **style)
    axes.text(middle, y + 0.42, part.what, fontsize=8, **style)
    axes.text(
        middle, y + 0.18, f"chapter {part.chapters}", fontsize=7.5, color=GREY, **style
    )


def _arrow(axes: Axes, start: Part, end: Part) -> None:
    ends = [
        (part.x * STEP_X + WIDTH / 2, part.y * STEP_Y + HEIGHT / 2)
        for part in (start, end)
    ]
    (x0, y0), (x1, y1) = ends
    if start.y == end.y:
        side = 1 if x1 > x0 else -1
        x0, x1 = x0 + side * WIDTH / 2, x1 - side * WIDTH / 2
    else:
        side = 1 if end.y > start.y else -1
        y0, y1 = y0 + side * HEIGHT / 2, y1 - side * HEIGHT / 2
        x0, x1 = (x0 + 0.35, x1 - 0.35) if x1 > x0 else (x0, x1)
    arrow = {"arrowstyle": "-|>", "color": ORANGE, "shrinkA": 2, "shrinkB": 2}
    axes.annotate("", (x1, y1), (x0, y0), arrowprops=arrow)


def told() -> str:
    """The map in words: one line a folder, with the folders it hands on to."""
    lines = []
    for name, part in PARTS.items():
        onward = [end for start, end in ARROWS if start == name]
        goes = f"  → {', '.join(onward)}" if onward else ""
        lines.append(f"{name:10} {part.what:23} chapter {part.chapters:10}{goes}")
    lines.append(f"dashed: the outside world ({', '.join(OUTSIDE)})")
    return "\n".join(line.rstrip() for line in lines)
