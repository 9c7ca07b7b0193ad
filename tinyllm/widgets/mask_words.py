"""A walk under a grammar in words: each step, its state, why a token is illegal.

`mask_explorer` shows the same as a picture that can be moved.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np

from tinyllm.decode.generate import Choice
from tinyllm.decode.sampling import softmax
from tinyllm.errors import UsageError
from tinyllm.grammar import explain
from tinyllm.widgets import mask
from tinyllm.widgets.token_row import BY_HAND, DRAWN, FORCED, STEPPED_IN, WIDE
from tinyllm.widgets.walk import CEILING, HAND, Step, Walk
from tinyllm.widgets.written import written

LISTED = 60  # legal tokens in the list at most, and as many illegal ones


def mark(step: Step) -> str:
    """How a token came to be, as one character that is no likely token, or nothing."""
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
    """A state in words: the automaton's control, and the rules to return to."""
    returns, frame = [], state.frame
    while frame is not None:
        returns.append(str(frame.control))
        frame = frame.below
    if not returns:
        return f"control {state.control}, no rule open"
    many = f"{len(returns)} rule" + "s" * (len(returns) > 1)
    top = ", ".join(returns[:5]) + ", …" * (len(returns) > 5)
    return f"control {state.control}, {many} open, to return to {top}"


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
