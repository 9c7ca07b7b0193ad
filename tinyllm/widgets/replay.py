"""Look at a run of the agent again: step by step, with the mask of each token.

`viewer(trace, tokenizer)` is a slider over all tokens of the run, with buttons for the
steps and one that plays it; its static twins are `still(trace, tokenizer, at)`, a
picture, and `told` with the same arguments, the same in words. `at` counts the
`moments(trace)` from 0. The trace must have kept its choices:
`tinyllm.Agent(lm, tools, keep_choices=True).run(task)`.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
from IPython.display import Image
from matplotlib.figure import Figure

from tinyllm.agent.trace import Trace
from tinyllm.widgets import mask
from tinyllm.widgets import picture as look
from tinyllm.widgets.replay_words import (
    MARKS,
    Moment,
    account,
    listed,
    looked_at,
    moment_of,
    moments,
    named,
    row,
    spelled,
    told,
)
from tinyllm.widgets.token_row import token_row

__all__ = ["Moment", "draw", "moments", "still", "told", "viewer"]

LEGEND = {"": "as the model wanted"} | MARKS
PACE = 1000  # milliseconds a token while it plays: more than a picture takes


def draw(trace: Trace, tokenizer: Any, at: int) -> Figure:
    """The tokens of the slot in a row, above the bars before and after the mask."""
    moment = moment_of(trace, at)
    with look.styled():
        fig = look.figure(7.2, 3.8)
        grid = fig.add_gridspec(2, 1, height_ratios=[0.62, 2.9])
        above = fig.add_subplot(grid[0])
        above.set_title(named(trace, at), fontsize=9, loc="left")
        tokens = [(spelled(m, tokenizer), m.mark) for m in row(trace, at)]
        token_row(above, tokens, moment.token, LEGEND)
        panels: Any = grid[1].subgridspec(1, 2).subplots(sharey=True)
        if moment.choice is None:
            for axes in panels:
                axes.set_axis_off()
            return fig
        found = mask.bars(moment.choice, tokenizer)[::-1]
        mask.panel(panels[0], found, [b.before for b in found], "before the mask")
        mask.panel(panels[1], found, [b.after for b in found], "after the mask")
    return fig


def still(trace: Trace, tokenizer: Any, at: int) -> Image:
    """The picture as a cell shows it, with the words of `told` as alt text."""
    return look.shown(draw(trace, tokenizer, at), told(trace, tokenizer, at))


class _Viewer:
    """The widgets of one run, and what happens when one of them is used."""

    def __init__(self, trace: Trace, tokenizer: Any, at: int) -> None:
        self.trace, self.tokenizer = trace, tokenizer
        self.steps = [moment.step for moment in moments(trace)]
        last = max(1, len(self.steps) - 1)
        self.slider = widgets.IntSlider(
            at, 0, last, readout=False, continuous_update=False,
            style={"description_width": "19em"}, layout={"width": "720px"},
        )  # fmt: skip
        self.play = widgets.Play(
            value=at, min=0, max=last, interval=PACE, show_repeat=False
        )
        self.link = widgets.jslink((self.play, "value"), (self.slider, "value"))
        self.back = self._button("previous step", -1)
        self.on = self._button("next step", 1)
        self.lines, self.words = widgets.HTML(), widgets.HTML()
        self.picture = widgets.Image(format="png", width=720)
        self.slider.observe(self._redraw, "value")
        self._redraw()

    def box(self) -> widgets.VBox:
        """Everything, one below the other."""
        buttons = widgets.HBox([self.play, self.back, self.on])
        parts = [self.slider, buttons, self.lines, self.picture, self.words]
        return widgets.VBox(parts)

    def _button(self, name: str, way: int) -> widgets.Button:
        button = widgets.Button(description=name)
        button.on_click(lambda _: self._to(self.steps[self.slider.value] + way))
        return button

    def _to(self, step: int) -> None:
        """Go to the first token of a step, if there is such a step."""
        if step in self.steps:
            self.slider.value = self.steps.index(step)

    def _redraw(self, _: object = None) -> None:
        """The words first: they are there at once, and the picture takes a while."""
        trace, tokenizer = self.trace, self.tokenizer
        at = min(int(self.slider.value), len(self.steps) - 1)
        step = self.steps[at]
        self.slider.description = named(trace, at)
        self.back.disabled, self.on.disabled = step == 0, step == self.steps[-1]
        lines = "\n".join(listed(trace, tokenizer, at))
        self.lines.value = look.pre("replay-transcript", lines)
        words = f"{account(trace, step)}\n\n{looked_at(trace, tokenizer, at)}"
        self.words.value = look.pre("replay-words", words)
        self.picture.value = look.png(draw(trace, tokenizer, at))


def viewer(trace: Trace, tokenizer: Any, at: int = 0) -> widgets.VBox:
    """A slider over the tokens, buttons for the steps, and Play; the rest follows."""
    moment_of(trace, at)
    return _Viewer(trace, tokenizer, at).box()
