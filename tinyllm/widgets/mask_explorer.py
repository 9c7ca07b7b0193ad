"""Look at a walk under a grammar: each step, why a token is illegal, other ways.

`explorer(walk, tokenizer)` is a slider over the tokens with a list of all that could
stand there: click one to read why it is illegal, or take it and let the model go on.
Its static twins are `still(walk, tokenizer, step)`, a picture, `told` with the same
arguments, the same in words, and `why(walk, tokenizer, step, token_id)`. Steps count
from 0, and from 1 where a reader sees them. `mask` has the plainer view of choices
alone.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
from IPython.display import Image
from matplotlib.figure import Figure

from tinyllm.decode.sampling import softmax
from tinyllm.errors import TinyllmError
from tinyllm.widgets import mask
from tinyllm.widgets import picture as look
from tinyllm.widgets.mask_words import (
    deeds,
    listed,
    mark,
    stacked,
    step_of,
    told,
    why,
)
from tinyllm.widgets.token_row import BY_HAND, FORCED, STEPPED_IN, token_row
from tinyllm.widgets.walk import Walk
from tinyllm.widgets.written import written

__all__ = ["deeds", "draw", "explorer", "stacked", "still", "told", "why"]

LEGEND = {
    "": "as the model wanted",
    STEPPED_IN: "the mask stepped in",
    BY_HAND: "by hand",
    FORCED: "forced by the ceiling",
}


def draw(walk: Walk, tokenizer: Any, step: int) -> Figure:
    """The tokens in a row, marked, above the bars before and after the mask."""
    found = mask.bars(step_of(walk, step).choice, tokenizer)[::-1]
    with look.styled():
        fig = look.figure(7.2, 3.6)
        grid = fig.add_gridspec(2, 1, height_ratios=[0.62, 2.9])
        names = [written(tokenizer, i) for i in walk.token_ids]
        tokens = list(zip(names, map(mark, walk.steps), strict=True))
        token_row(fig.add_subplot(grid[0]), tokens, step, LEGEND)
        panels: Any = grid[1].subgridspec(1, 2).subplots(sharey=True)
        mask.panel(panels[0], found, [b.before for b in found], "before the mask")
        mask.panel(panels[1], found, [b.after for b in found], "after the mask")
    return fig


def still(walk: Walk, tokenizer: Any, step: int) -> Image:
    """The picture as a cell shows it, with the words of `told` as alt text."""
    return look.shown(draw(walk, tokenizer, step), told(walk, tokenizer, step))


class _Explorer:
    """The widgets of one walk, and what happens when one of them is used."""

    def __init__(self, walk: Walk, tokenizer: Any, step: int) -> None:
        self.walk, self.tokenizer = walk, tokenizer
        self.slider = widgets.IntSlider(
            step + 1, 1, max(2, len(walk.steps)), description="token",
            continuous_update=False,
        )  # fmt: skip
        self.words, self.reason, self.done = (widgets.HTML() for _ in range(3))
        self.picture = widgets.Image(format="png", width=720)
        self.tokens = widgets.Select(rows=10, layout=widgets.Layout(width="240px"))
        self.buttons = [
            self._button("take it by hand", self._take),
            self._button("the model goes on", lambda: walk.go_on()),
            self._button("undo", walk.undo),
        ]
        self.slider.observe(self._redraw, "value")
        self.tokens.observe(self._explain, "value")
        self._redraw()

    def box(self) -> widgets.VBox:
        """Everything, one below the other."""
        side = widgets.VBox([self.reason, widgets.HBox(self.buttons)])
        below = widgets.HBox([self.tokens, side])
        return widgets.VBox([self.slider, self.words, self.picture, below, self.done])

    @property
    def step(self) -> int:
        """The number of the step looked at, from 0."""
        return int(self.slider.value) - 1

    def _button(self, name: str, deed: Any) -> widgets.Button:
        button = widgets.Button(description=name)

        def clicked(_: object) -> None:
            try:
                deed()
            except TinyllmError as error:
                self.reason.value = look.pre("why", str(error))
            else:
                self._moved()

        button.on_click(clicked)
        return button

    def _take(self) -> None:
        self.walk.take(self.step, self.tokens.value)

    def _moved(self) -> None:
        """After a deed: the slider stays where it is if there still is a token."""
        n = len(self.walk.steps)
        self.slider.value = min(int(self.slider.value), n)
        self.slider.max = max(2, n)
        self._redraw()

    def _redraw(self, _: object = None) -> None:
        walk, n = self.walk, len(self.walk.steps)
        if self.step >= n:  # of one token only
            self.slider.value = n
            return
        self.words.value = look.pre("mask-words", told(walk, self.tokenizer, self.step))
        self.done.value = look.pre("mask-deeds", deeds(walk))
        self.picture.value = look.png(draw(walk, self.tokenizer, self.step))
        choice = step_of(walk, self.step).choice
        chances = softmax(choice.logits)  # (V,)
        ids = listed(walk, self.step)
        names = [f"{written(self.tokenizer, i)}  {chances[i]:.2f}" for i in ids]
        legal = [choice.mask is None or bool(choice.mask[i]) for i in ids]
        signs = ["" if fits else "  illegal" for fits in legal]
        options = [n + sign for n, sign in zip(names, signs, strict=True)]
        self.tokens.options = list(zip(options, ids, strict=True))
        self.tokens.value = choice.token_id
        self._explain()

    def _explain(self, _: object = None) -> None:
        walk, token_id = self.walk, self.tokens.value
        if token_id is None:
            return
        at = step_of(walk, self.step)
        self.reason.value = look.pre(
            "mask-why", why(walk, self.tokenizer, self.step, token_id)
        )
        take, on, undo = self.buttons
        found = walk.grammar.explain(at.state, token_id)
        take.disabled = not found.legal or token_id == at.choice.token_id
        on.disabled, undo.disabled = walk.ended, not walk.can_undo


def explorer(walk: Walk, tokenizer: Any, step: int = 0) -> widgets.VBox:
    """A slider over the tokens, a list to choose from, and buttons; words follow."""
    step_of(walk, step)
    return _Explorer(walk, tokenizer, step).box()
