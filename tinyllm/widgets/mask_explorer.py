"""Look at a walk under a grammar: each step, why a token is illegal, other ways.

`explorer(walk, tokenizer)` is a slider over the tokens with a list of all that could
stand there: click one to read why it is illegal, or take it and let the model go on.
Its static twins are `still(walk, tokenizer, step)`, a picture, `told` with the same
arguments, the same in words, and `why(walk, tokenizer, step, token_id)`. Steps count
from 0, and from 1 where a reader sees them. `mask` has the plainer view of choices
alone.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any

import ipywidgets as widgets
import numpy as np
from IPython.display import Image
from matplotlib.figure import Figure

from tinyllm.decode.generate import Choice
from tinyllm.decode.sampling import softmax
from tinyllm.errors import TinyllmError, UsageError
from tinyllm.grammar import explain
from tinyllm.widgets import mask
from tinyllm.widgets import picture as look
from tinyllm.widgets.token_row import (
    BY_HAND,
    DRAWN,
    FORCED,
    STEPPED_IN,
    WIDE,
    token_row,
)
from tinyllm.widgets.walk import CEILING, HAND, Step, Walk
from tinyllm.widgets.words import Words
from tinyllm.widgets.written import written

LISTED = 60  # legal tokens in the list at most, and as many illegal ones


def mark(step: Step) -> str:
    """How a token came to be, as one character that is rarely a token, or nothing."""
    signs = {HAND: BY_HAND, CEILING: FORCED}
    return signs.get(step.by) or mark_of(step.choice)


def mark_of(choice: Choice) -> str:
    """The same for a choice by model and mask alone."""
    if choice.forced:
        return FORCED
    if choice.wanted == choice.token_id:
        return ""
    return STEPPED_IN if choice.stepped_in else DRAWN


def trail(walk: Walk, tokenizer: Any, step: int) -> list[str]:
    """All tokens with their marks, the one looked at between » and «."""
    names = [written(tokenizer, i) for i in walk.token_ids]
    marked = [name + mark(s) for name, s in zip(names, walk.steps, strict=True)]
    return [f"»{name}«" if i == step else name for i, name in enumerate(marked)]


def stacked(state: Any) -> str:
    """Return a state in words: its DFA state, and those to return to."""
    returns, frame = [], state.frame
    while frame is not None:
        returns.append(_nodes(frame.state))
        frame = frame.below
    here = f"DFA state {_nodes(state.dfa)}"
    if not returns:
        return f"{here}, no rule open"
    many = f"{len(returns)} rule" + "s" * (len(returns) > 1)
    top = ", ".join(returns[:5]) + ", …" * (len(returns) > 5)
    return f"{here}, {many} open, to return to {top}"


def _nodes(dfa: Any) -> str:
    """Return the name of a DFA state: the nodes of the graph that it is a set of."""
    nodes = sorted({node for node, _ in dfa.positions})
    return "{" + ",".join(map(str, nodes[:3])) + ",…" * (len(nodes) > 3) + "}"


def told(walk: Walk, tokenizer: Any, step: int) -> str:
    """One step in words: counts, mass, wanted and got, state and stack, the trail."""
    at = step_of(walk, step)
    choice, left = at.choice, walk.budget - step
    choices = [s.choice for s in walk.steps]
    words = mask.told(choices, tokenizer, step)
    if at.by == HAND:
        words = words[: words.rindex("(")] + "(chosen by hand)"
    needed = len(walk.grammar.finish(at.state))
    close = f"tokens to close: {needed} needed, {left} left of {walk.budget}"
    one = "\nnothing else was legal" if choice.legal == 1 else ""
    way = fill(" ".join(trail(walk, tokenizer, step)), WIDE, break_on_hyphens=False)
    return f"{words}{one}\nstate: {stacked(at.state)}\n{close}\n{way}"


def deeds(walk: Walk) -> str:
    """What was done, a line each, and the session's counter of forwarded positions."""
    lines = [str(deed) for deed in walk.deeds]
    return "\n".join([*lines, f"forwarded in all: {walk.session.forwarded}"])


def why(walk: Walk, tokenizer: Any, step: int, token_id: int) -> str:
    """Why a token is legal or not at a step: the first byte that fails, and what fits.

    The probability is what the model alone gave to the token.
    """
    at = step_of(walk, step)
    found = walk.grammar.explain(at.state, token_id)
    verdict = "legal" if found.legal else "illegal"
    logits = at.choice.logits
    chance = softmax(logits)[token_id] if 0 <= token_id < len(logits) else 0
    lines = [f"{_name(walk, tokenizer, token_id)} is {verdict} at token {step + 1}"]
    lines.append(f"the model gave it {chance:.2f}")
    if found.at is None or not found.data:
        return "\n".join([*lines, found.reason])
    bytes_ = [explain.written([byte]) for byte in found.data]
    fits = " ".join(bytes_[: found.at]) or "nothing"
    lines.append(f"fits:     {fits}")
    lines.append(f"fails:    {bytes_[found.at]}, byte {found.at + 1} of {len(bytes_)}")
    ends = _after(walk, at, found.data[: found.at])
    words = explain.written(found.expected) + ", or the end" * ends
    return "\n".join([*lines, fill(f"expected: {words}", WIDE)])


def _after(walk: Walk, at: Step, data: bytes) -> bool:
    """Whether the text may end after some bytes of a token."""
    state = at.state
    for byte in data:
        state = walk.grammar.machine.next(state, byte)
    return bool(walk.grammar.may_end(state))


def _name(walk: Walk, tokenizer: Any, token_id: int) -> str:
    inside = 0 <= token_id < walk.grammar.vocabulary.size
    return written(tokenizer, token_id) if inside else f"<{token_id}>"


def step_of(walk: Walk, step: int) -> Step:
    """The step of this number; UsageError if there is none."""
    if not walk.steps:
        raise UsageError("nothing was chosen yet: call go_on first")
    if not 0 <= step < len(walk.steps):
        raise UsageError(f"step is {step}; expected 0 to {len(walk.steps) - 1}")
    return walk.steps[step]


def listed(walk: Walk, step: int) -> list[int]:
    """The ids to choose from: what was wanted, then legal ones, then illegal ones.

    The likeliest first, `LISTED` of each kind at most, and the chosen one.
    """
    choice = step_of(walk, step).choice
    order = np.argsort(-choice.logits, kind="stable")  # (V,)
    fits = np.ones(len(order), bool) if choice.mask is None else choice.mask[order]
    legal, illegal = (order[which][:LISTED].tolist() for which in (fits, ~fits))
    return list(dict.fromkeys([choice.wanted, *legal, choice.token_id, *illegal]))


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
        self.words, self.reason, self.done = Words(), widgets.HTML(), widgets.HTML()
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
