"""Draw tokens in a row, each in a box whose look says how it came to be: `token_row`.

`LOOKS` has a look for each mark, by hatch as well as by colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from matplotlib.axes import Axes

from tinyllm.widgets import picture as look

WIDE = 84  # characters in a line
# by the mask, by hand, by chance, by the ceiling
STEPPED_IN, BY_HAND, DRAWN, FORCED = "★◆◇▼"
_PLAIN: dict[str, Any] = {"facecolor": "white", "edgecolor": look.GREEN}
LOOKS: dict[str, dict[str, Any]] = {
    "": {"facecolor": "#CFE3F1", "edgecolor": look.BLUE},
    STEPPED_IN: {"facecolor": "white", "edgecolor": look.ORANGE, "hatch": "////"},
    BY_HAND: _PLAIN | {"hatch": "----"},
    DRAWN: _PLAIN | {"hatch": "||||"},
    FORCED: {"facecolor": "#EEE", "edgecolor": look.GREY, "hatch": "...."},
}


def token_row(
    axes: Axes,
    tokens: Sequence[tuple[str, str]],
    at: int,
    legend: Mapping[str, str],
) -> None:
    """Draw (name, mark) pairs as far as there is room around number `at`.

    Below stands what each mark of the `legend` means.
    """
    names = [name + mark for name, mark in tokens]
    ends = [0, *accumulate(len(name) + 1 for name in names)]
    middle = (ends[at] + ends[at + 1]) / 2
    left = max(0.0, min(middle - WIDE / 2, ends[-1] - WIDE))
    for i, (x, end) in enumerate(pairwise(ends)):
        if left < end and x < left + WIDE:
            _box(axes, names[i], LOOKS[tokens[i][1]], x, end - x)
        if i == at:
            place = (x, 1.1, end - x, -0.15)
            axes.bar(*place, align="edge", fill=False, ec="black", lw=1.8)
    _explained(axes, left, legend)
    axes.set(xlim=(left - 0.3, left + WIDE), ylim=(-1.2, 1.1))
    axes.set_axis_off()


def _box(axes: Axes, name: str, style: dict[str, Any], x: float, size: float) -> None:
    axes.bar(x + 0.15, 0.8, size - 0.3, align="edge", **style)
    back = {"facecolor": style["facecolor"], "lw": 0, "pad": 0.6}
    font: Any = {"family": "monospace", "fontsize": 7, "parse_math": False}
    place: Any = {"ha": "center", "va": "center", "clip_on": True}
    axes.text(x + size / 2, 0.4, name, bbox=back, **place, **font)


def _explained(axes: Axes, left: float, legend: Mapping[str, str]) -> None:
    """The legend in one line; an entry is as wide as its words are long."""
    x = left
    for mark, words in legend.items():
        axes.bar(x, 0.5, 2.4, -1.05, align="edge", **LOOKS[mark])
        text = f"{mark} {words}".strip()
        axes.text(x + 3, -0.8, text, va="center", fontsize=7.5, color=look.GREY)
        x += 4 + 0.8 * len(text)
