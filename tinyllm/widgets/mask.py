"""Look at a grammar mask: what the model wanted, what was legal, what it got.

`explorer(choices, tokenizer)` is a slider over the tokens of one call; its static twins
are `still(choices, tokenizer, step)`, a picture of one step, and `told(choices,
tokenizer, step)`, the same in words. `choices` are what a backend keeps with
`keep_choices=True`: the real logits and the real masks. `mask_explorer` looks further
into a text: why a token is illegal, and what else could have been written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
import numpy as np
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tinyllm.decode.generate import Choice
from tinyllm.decode.sampling import softmax
from tinyllm.widgets.picture import BLUE, GREY, ORANGE, figure, png, pre, shown, styled
from tinyllm.widgets.words import Words
from tinyllm.widgets.written import written

TOP = 8


@dataclass(frozen=True)
class Bar:
    """One token of the picture: its text, both probabilities, and its part in it."""

    text: str
    before: float
    after: float
    legal: bool
    note: str


def bars(choice: Choice, tokenizer: Any, top: int = TOP) -> list[Bar]:
    """The likeliest tokens before the mask and after it, the chosen one among them."""
    before = softmax(choice.logits)  # (V,)
    legal = np.ones(len(before), bool) if choice.mask is None else choice.mask
    after = softmax(np.where(legal, choice.logits, -np.inf))  # (V,)
    order = np.argsort(-np.maximum(before, after), kind="stable")[:top]
    ids = [int(i) for i in order]
    ids = ids if choice.token_id in ids else [*ids[:-1], choice.token_id]

    def note(token_id: int) -> str:
        parts = {"wanted": choice.wanted, "got": choice.token_id}
        named = [name for name, i in parts.items() if i == token_id]
        return ", ".join(named if legal[token_id] else [*named, "illegal"])

    return [
        Bar(
            written(tokenizer, i),
            float(before[i]),
            float(after[i]),
            bool(legal[i]),
            note(i),
        )
        for i in ids
    ]


def draw(choice: Choice, tokenizer: Any) -> Figure:
    """Two rows of bars, before and after the mask; illegal tokens are hatched."""
    found = bars(choice, tokenizer)[::-1]
    with styled():
        fig = figure(7.2, 2.9)
        left, right = fig.subplots(1, 2, sharey=True)
        panel(left, found, [b.before for b in found], "before the mask")
        panel(right, found, [b.after for b in found], "after the mask")
    return fig


def panel(axes: Axes, found: list[Bar], values: list[float], title: str) -> None:
    """Draw one row of bars with its notes; illegal tokens are hatched."""
    rows = axes.barh(range(len(found)), values)
    for row, bar, value in zip(rows, found, values, strict=True):
        row.set_facecolor(BLUE if bar.legal else "white")
        row.set_edgecolor(BLUE if bar.legal else ORANGE)
        row.set_hatch(None if bar.legal else "////")
        label = f"{value:.2f}  {bar.note}".rstrip()
        at = row.get_y() + row.get_height() / 2
        axes.text(value + 0.02, at, label, va="center", fontsize=8, color=GREY)
    names = [bar.text for bar in found]
    axes.set_yticks(range(len(found)), names, family="monospace", parse_math=False)
    axes.set_xlim(0, 1.45)
    axes.set_xticks([0, 0.5, 1])
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel("probability")


def so_far(choices: Sequence[Choice], tokenizer: Any, step: int) -> str:
    """The text that stands before token number `step`."""
    return str(tokenizer.decode([choice.token_id for choice in choices[:step]]))


def told(choices: Sequence[Choice], tokenizer: Any, step: int) -> str:
    """One step in words: the text so far, the count of legal tokens, wanted and got."""
    choice = choices[step]
    wanted, got = (written(tokenizer, i) for i in (choice.wanted, choice.token_id))
    total = len(choice.logits)
    legal = total if choice.legal is None else choice.legal
    kept = 1.0 if choice.mass_kept is None else choice.mass_kept
    same = choice.wanted == choice.token_id
    verdict = "the same" if same else "drawn by chance, both legal"
    if choice.stepped_in:
        verdict = "the mask stepped in"
    if choice.forced:
        verdict = "forced: the ceiling is near"
    before = so_far(choices, tokenizer, step)
    return (
        f"token {step + 1} of {len(choices)}, after {before!r}"
        f"\nlegal: {legal} of {total} tokens, which held {kept:.2f} of the probability"
        f"\nwanted {wanted}, got {got} ({verdict})"
    )


def still(choices: Sequence[Choice], tokenizer: Any, step: int) -> Image:
    """The picture of one step, as a cell shows it, with the words of `told` as alt."""
    fig = draw(choices[step], tokenizer)
    return shown(fig, told(choices, tokenizer, step))


def explorer(choices: Sequence[Choice], tokenizer: Any) -> widgets.VBox:
    """A slider over the tokens of a call; picture and words follow it."""
    slider = widgets.IntSlider(
        min=1, max=len(choices), description="token", continuous_update=False
    )
    picture = widgets.Image(format="png", width=720)
    words = Words()

    def redraw(_: object = None) -> None:
        step = slider.value - 1
        picture.value = png(draw(choices[step], tokenizer))
        words.value = pre("mask", told(choices, tokenizer, step))

    slider.observe(redraw, "value")
    redraw()
    return widgets.VBox([slider, words, picture])
