"""A run of the agent in words: its transcript, its steps, and the mask of each token.

Public: `Moment`, `moments`, `Line`, `transcript`, `account`, `told`. `replay` shows the
same as a picture that can be moved. Nothing is computed again: lines come from the
trace's ids, figures from its slots, masks from the choices they kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from tinyllm.agent import protocol
from tinyllm.agent.backend import Slot
from tinyllm.agent.trace import Step, Trace
from tinyllm.decode.generate import Choice
from tinyllm.errors import UsageError
from tinyllm.widgets import mask
from tinyllm.widgets.mask_words import mark_of
from tinyllm.widgets.token_row import DRAWN, FORCED, STEPPED_IN, WIDE
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
    lines += ["tool: none, the call does not parse"]
    if record.tool is not None:
        args = protocol.one_line_json(record.args)
        lines[-1] = f"tool: {seen(record.tool)}, arguments {seen(args)}"
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
