"""The record of a run: `Trace` and its `Step`s, as text, as a dict, as JSON lines.

`Trace.account` adds up what a run cost: calls, parsed calls, tokens of each kind.

Before: agent.local. Next: agent.loop.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tinyllm.agent import protocol
from tinyllm.agent.backend import Count, Slot, total
from tinyllm.agent.protocol import observation_literal, one_line_json

# The fields of a step in JSON: what was said and done, then what it cost.
_SAID = ("thought", "call", "tool", "args", "observation", "answer")
_COUNTED = (
    "tokens",
    "forwarded",
    "reused",
    "constrained",
    "legal_min",
    "mass_kept",
    "forced",
    "attempts",
)


@dataclass(frozen=True)
class Step:
    """One turn: two slots by the model, and the result of the call.

    `tool` and `args` are None if the call did not parse. `observation` is the text as
    the model read it, already cut, and None after an answer.
    """

    slots: tuple[Slot, Slot] = field(repr=False)  # thought, call
    tool: str | None
    args: dict[str, Any] | None
    observation: str | None = None
    answer: str | None = None

    @property
    def thought(self) -> str:
        """Return the text of the thought."""
        return self.slots[0].text

    @property
    def call(self) -> str:
        """Return the text of the call as the model wrote it."""
        return self.slots[1].text

    @property
    def tokens(self) -> Count:
        """Return the number of tokens of thought and call together."""
        return total([slot.tokens for slot in self.slots])

    @property
    def forwarded(self) -> Count:
        """Return the number of positions that this step forwarded."""
        return total([slot.forwarded for slot in self.slots])

    @property
    def reused(self) -> Count:
        """Return the number of positions that the two slots found in the cache."""
        return total([slot.reused for slot in self.slots])

    @property
    def constrained(self) -> bool:
        """Return whether a grammar, here or at a server, held the call to its form."""
        return self.slots[1].constrained

    @property
    def legal_min(self) -> int | None:
        """Return the smallest number of tokens legal in the call; None without mask."""
        return self.slots[1].legal_min

    @property
    def mass_kept(self) -> float | None:
        """Return the retained probability mass of the call; None without a mask."""
        return self.slots[1].mass_kept

    @property
    def attempts(self) -> int:
        """Return the number of replies, of which the last became the call."""
        return self.slots[1].attempts

    @property
    def forced(self) -> bool:
        """Return whether the grammar had to write the end of the call."""
        return self.slots[1].forced

    def to_json(self) -> dict[str, Any]:
        """Return the step as a plain dict."""
        plain = {name: getattr(self, name) for name in _SAID + _COUNTED}
        mass = plain["mass_kept"]  # the digits left out differ between machines
        return plain | {"mass_kept": None if mass is None else round(mass, 4)}

    def json_line(self, number: int) -> str:
        """Return the step as a line of JSON, with its number and a line break."""
        return one_line_json({"step": number} | self.to_json()) + "\n"

    def __str__(self) -> str:
        legal = f"legal min {self.legal_min}"
        if self.legal_min is None:  # no mask of ours, though perhaps a server's
            asked = self.slots[1].asked
            legal = "schema sent, perhaps ignored" if asked else "unconstrained"
            legal = "constrained by the server" if self.constrained else legal
        work = f"forwarded {_known(self.forwarded)}, reused {_known(self.reused)}"
        forced = ", forced" if self.forced else ""
        again = f", {self.attempts} attempts" if self.attempts > 1 else ""
        lines = [
            # a free call may contain anything, but not a line of its own
            f"THOUGHT: {protocol.one_line(self.thought)}",
            f"CALL: {protocol.one_line(self.call)}",
            f"      [{_known(self.tokens)} tokens, {legal}, {work}{forced}{again}]",
        ]
        if self.observation is not None:
            # the whole of it: the loop has cut it already
            literal = observation_literal(self.observation, len(self.observation))
            lines.append(f"OBSERVATION: {literal}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Account:
    """What the steps of a run add up to; tokens are None where a server hides them."""

    calls: int
    parsed: int  # of the calls
    thought_tokens: Count
    call_tokens: Count

    def __str__(self) -> str:
        thoughts, calls = _known(self.thought_tokens), _known(self.call_tokens)
        return (
            f"[in all: {self.parsed} of {self.calls} calls parsed, "
            f"{thoughts} tokens of thoughts, {calls} of calls]"
        )


@dataclass(frozen=True)
class Trace:
    """A complete run: the task, the steps, the answer if there is one, why it ended.

    `reason` is "answered", "max_steps", "repeated" (the same action with the same
    observation twice in a row), "context_full" or "time_up"; in a ServerError it is
    "server_error". `token_ids` is the transcript, including a slot that was begun.
    """

    task: str
    answer: str | None
    steps: tuple[Step, ...]
    reason: str
    token_ids: tuple[int, ...] = field(repr=False)  # with bos and all scaffolding

    @property
    def account(self) -> Account:
        """Return what the complete steps cost; a slot that was cut off is not one."""
        return Account(
            calls=len(self.steps),
            parsed=sum(step.tool is not None for step in self.steps),
            thought_tokens=total([step.slots[0].tokens for step in self.steps]),
            call_tokens=total([step.slots[1].tokens for step in self.steps]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the run without ids: task, answer, reason, account and steps."""
        return self._summary() | {"steps": [step.to_json() for step in self.steps]}

    def json_lines(self) -> str:
        """Return the run as JSON lines: one for each step, then one for the end."""
        lines = [step.json_line(i) for i, step in enumerate(self.steps, start=1)]
        return "".join([*lines, self.json_end()])

    def json_end(self) -> str:
        """Return the last of the JSON lines: task, answer, reason and account."""
        return one_line_json(self._summary()) + "\n"

    def end(self) -> str:
        """Return why the run stopped, as a line, or "" if it was answered."""
        return "" if self.reason == "answered" else f"STOPPED: {self.reason}"

    def _summary(self) -> dict[str, Any]:
        found = {"task": self.task, "answer": self.answer, "reason": self.reason}
        return found | {"account": asdict(self.account)}

    def __str__(self) -> str:
        return "\n".join(filter(None, [*map(str, self.steps), self.end()]))


def _known(count: Count) -> int | str:
    return "?" if count is None else count
