"""Look at a run of the agent again: step by step, with the mask of each token.

`viewer(trace, tokenizer)` is a slider over all tokens of the run, with buttons for the
steps and one that plays it; its static twins are `still(trace, tokenizer, at)`, a
picture, and `told` with the same arguments, the same in words. `at` counts the
`moments(trace)` from 0. The trace must have kept its choices:
`tinyllm.Agent(lm, tools, keep_choices=True).run(task)`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import ipywidgets as widgets
from IPython.display import Image
from matplotlib.figure import Figure

from tinyllm.agent import protocol
from tinyllm.agent.backend import Slot
from tinyllm.agent.trace import Step, Trace
from tinyllm.decode.generate import Choice
from tinyllm.errors import UsageError
from tinyllm.widgets import mask
from tinyllm.widgets import picture as look
from tinyllm.widgets.mask_explorer import mark_of
from tinyllm.widgets.token_row import DRAWN, FORCED, STEPPED_IN, WIDE, token_row
from tinyllm.widgets.words import Words
from tinyllm.widgets.written import written

KINDS = ("thought", "call")
MARKS = {
    STEPPED_IN: "the mask stepped in",
    DRAWN: "drawn by chance",
    FORCED: "forced by the ceiling",
}
NOTHING = "the line ended at once"
_BREAK = re.compile(r"\n(?=(?:FORMAT|TASK|THOUGHT|CALL|OBSERVATION): )")


@dataclass(frozen=True)
class Moment:
    """One token of a run: its step and its place in the slot from 0, and its choice.

    `kind` is "thought" or "call". A slot without tokens is one moment too, whose choice
    is None.
    """

    step: int
    kind: str
    token: int
    choice: Choice | None

    @property
    def stepped_in(self) -> bool:
        """Whether the mask forbade the token that the model wanted most."""
        return self.choice is not None and self.choice.stepped_in

    @property
    def mark(self) -> str:
        """How the token came to be, as one character, or nothing if as wanted."""
        return "" if self.choice is None else mark_of(self.choice)


def moments(trace: Trace) -> list[Moment]:
    """Every token of the run, in order.

    UsageError for a run without a step, or one that kept no choices.
    """
    if not trace.steps:
        raise UsageError(
            f"the trace has no steps, it ended by {trace.reason}: give the run more "
            "room or more time"
        )
    found: list[Moment] = []
    for number, step in enumerate(trace.steps):
        for kind, slot in zip(KINDS, step.slots, strict=True):
            if len(slot.choices) != len(slot.token_ids):
                raise UsageError(
                    f"the {kind} of step {number + 1} has {len(slot.token_ids)} tokens "
                    f"and {len(slot.choices)} choices: run it with tinyllm.Agent(lm, "
                    "tools, keep_choices=True); a server's choices are not known"
                )
            found += [
                Moment(number, kind, token, choice)
                for token, choice in enumerate(slot.choices or (None,))
            ]
    return found


def moment_of(trace: Trace, at: int) -> Moment:
    """The moment of this number; UsageError if there is none."""
    found = moments(trace)
    if not 0 <= at < len(found):
        raise UsageError(f"at is {at}; expected 0 to {len(found) - 1}")
    return found[at]


def slot_of(trace: Trace, moment: Moment) -> Slot:
    """The slot to which the moment's token belongs."""
    return trace.steps[moment.step].slots[KINDS.index(moment.kind)]


def named(trace: Trace, at: int) -> str:
    """Where a moment is: "step 1 of 2, call, token 5 of 21"."""
    moment = moment_of(trace, at)
    n = len(slot_of(trace, moment).choices)
    token = f"token {moment.token + 1} of {n}" if n else "no token"
    return f"step {moment.step + 1} of {len(trace.steps)}, {moment.kind}, {token}"


@dataclass(frozen=True)
class Line:
    """One line of the transcript and who wrote what stands after its label.

    `author` is "harness", "user", "model" or "tool"; `step` is None before the first.
    """

    author: str
    text: str
    step: int | None = None


def transcript(trace: Trace, tokenizer: Any) -> list[Line]:
    """The lines of the transcript's ids, and one that says why the run ended.

    The labels are always the harness's. What cannot be printed is an escape.
    """
    lines: list[Line] = []
    step = -1
    for text in _BREAK.split(tokenizer.decode(list(trace.token_ids))):
        step += text.startswith("THOUGHT: ")
        author = _author(text.split(":")[0], trace, step, lines)
        lines.append(Line(author, seen(text), step if step >= 0 else None))
    steps = len(trace.steps)
    begun = f", in step {step + 1}, which has no record" if step >= steps else ""
    return [*lines, Line("harness", f"END: {trace.reason}{begun}")]


def _author(label: str, trace: Trace, step: int, lines: Sequence[Line]) -> str:
    """Who wrote a line; an error about a call to no known tool is the harness's."""
    if label == "OBSERVATION" and step < len(trace.steps):
        known = re.findall(r" (\w+)\(", lines[0].text)
        return "tool" if trace.steps[step].tool in known else "harness"
    return {"TASK": "user", "THOUGHT": "model", "CALL": "model"}.get(label, "harness")


def seen(text: str) -> str:
    """The text on one line: breaks, controls and what else cannot be seen, escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def listed(trace: Trace, tokenizer: Any, at: int) -> list[str]:
    """The transcript as text: ▶ at the slot looked at, step, author, marks, line.

    A long line goes on beneath itself. The last row says what the marks stand for, and
    how many tokens of the run have them.
    """
    found, moment = moments(trace), moment_of(trace, at)
    marks: Counter[tuple[int | None, str, str]] = Counter(
        (m.step, m.kind, m.mark) for m in found
    )
    rows = []
    for line in transcript(trace, tokenizer):
        slot = line.step, line.text.split(":")[0].lower()
        here = "▶" if slot == (moment.step, moment.kind) else " "
        signs = "".join(sign for sign in MARKS if marks[*slot, sign])
        number = "" if line.step is None else str(line.step + 1)
        rows.append(_cut(f"{here} {number:2} {line.author:8}{signs:4}", line.text))
    counts = Counter(m.mark for m in found)
    legend = [f"{sign} {what} ({counts[sign]})" for sign, what in MARKS.items()]
    return [*rows, f"marks: {', '.join(legend)}"]


def _cut(head: str, text: str) -> str:
    """A text beside its head, each character kept: blanks may be what matters."""
    room = WIDE - len(head)
    parts = [text[i : i + room] for i in range(0, len(text), room)]
    return head + f"\n{'':{len(head)}}".join(parts)


def account(trace: Trace, step: int) -> str:
    """What a step cost, what its mask did, and what came of its call."""
    record = trace.steps[step]
    thought, call = record.slots
    head = f"step {step + 1} of {len(trace.steps)}: {_cost(record)}"
    again = f", {call.attempts} attempts, the last is shown"
    tries = again if call.attempts > 1 else ""
    lines = [f"thought: {_cost(thought)}", f"call: {_cost(call)}{tries}"]
    lines.append("      no grammar: free text to the end of the line")
    if call.mass_kept is not None:
        forced = "the end was forced" if call.forced else "not forced"
        kept = f"mass kept {call.mass_kept:.2f}"
        lines[-1] = f"      legal minimum {call.legal_min}, {kept}, {forced}"
    lines.append("tool: none, the call does not parse")
    if record.tool is not None:
        args = seen(protocol.one_line_json(record.args))
        lines[-1] = f"tool: {seen(record.tool)}, arguments {args}"
    what, result = "result", record.observation
    if record.answer is not None:
        what, result = "answer", record.answer
    lines.append(f"{what}: {seen(protocol.one_line_json(result))}")
    return "\n".join([head, *(_cut("  ", line) for line in lines)])


def _cost(of: Step | Slot) -> str:
    """Tokens and positions of a step or slot; "?" for what a server does not say."""
    counts = [of.tokens, of.forwarded, of.reused]
    tokens, forwarded, reused = ("?" if n is None else n for n in counts)
    unit = "token" if tokens == 1 else "tokens"
    return f"{tokens} {unit}, forwarded {forwarded}, reused {reused}"


def row(trace: Trace, at: int) -> list[Moment]:
    """The moments of the slot looked at."""
    moment = moment_of(trace, at)
    same = (moment.step, moment.kind)
    return [other for other in moments(trace) if (other.step, other.kind) == same]


def looked_at(trace: Trace, tokenizer: Any, at: int) -> str:
    """One token in words: what was legal, wanted and got, the bars, and the row."""
    moment, head = moment_of(trace, at), named(trace, at)
    choice = moment.choice
    if choice is None:
        return f"{head}: {NOTHING}"
    slot = slot_of(trace, moment)
    rules = "the grammar of the tools" if slot.constrained else "one line of free text"
    _, legal, verdict = mask.told(slot.choices, tokenizer, moment.token).splitlines()
    names = [spelled(other, tokenizer) + other.mark for other in row(trace, at)]
    names[moment.token] = f"»{names[moment.token]}«"
    lines = [head, f"mask: {rules}", legal, verdict, *_bars(choice, tokenizer)]
    return "\n".join([*lines, _filled("row: ", names)])


def spelled(moment: Moment, tokenizer: Any) -> str:
    """The token as it is shown in the row."""
    if moment.choice is None:
        return NOTHING
    return written(tokenizer, moment.choice.token_id)


def _bars(choice: Choice, tokenizer: Any) -> list[str]:
    """Both rows of bars as text; those that would show 0.00 are left out."""
    found = mask.bars(choice, tokenizer)
    sides = {
        "before the mask: ": [(round(bar.before, 2), bar) for bar in found],
        "after the mask:  ": [(round(bar.after, 2), bar) for bar in found],
    }
    lines = []
    for name, pairs in sides.items():
        pairs.sort(key=lambda pair: (-pair[0], pair[1].text))
        shares = [
            f"{bar.text}{'' if bar.legal else ' (illegal)'} {share:.2f}"
            for share, bar in pairs
            if share or "got" in bar.note
        ]
        lines.append(_filled(name, shares, ", "))
    return lines


def _filled(name: str, parts: Iterable[str], between: str = " ") -> str:
    text = name + between.join(parts)
    return fill(text, WIDE, subsequent_indent="  ", break_on_hyphens=False)


def told(trace: Trace, tokenizer: Any, at: int) -> str:
    """The moment in words: the transcript, its step's account, its token, its mask.

    `at` counts the `moments` of the run from 0; UsageError if there is none.
    """
    step = moment_of(trace, at).step
    lines = "\n".join(listed(trace, tokenizer, at))
    return f"{lines}\n\n{account(trace, step)}\n\n{looked_at(trace, tokenizer, at)}"


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
        self.play = widgets.Play(at, max=last, interval=PACE, show_repeat=False)
        self.link = widgets.jslink((self.play, "value"), (self.slider, "value"))
        self.back = self._button("previous step", -1)
        self.on = self._button("next step", 1)
        self.lines, self.words = widgets.HTML(), Words()
        self.picture = widgets.Image(format="png", width=720)
        self.slider.observe(self._redraw, "value")
        self._redraw()

    def box(self) -> widgets.VBox:
        """Everything, one below the other."""
        buttons = widgets.HBox([self.play, self.back, self.on])
        below = [buttons, self.lines, self.picture, self.words]
        return widgets.VBox([self.slider, *below])

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
