"""What a run was: `Trace` and its `Step`s, as text, as a dict, as JSON lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tinyllm.agent import protocol
from tinyllm.agent.backend import Count, Slot, total
from tinyllm.agent.protocol import observation_literal, one_line_json

_SHOWN = ("thought", "call", "tool", "args", "observation", "answer")
_COUNTED = (
    "tokens",
    "forwarded",
    "reused",
    "legal_min",
    "mass_kept",
    "forced",
    "attempts",
)


@dataclass(frozen=True)
class Step:
    """One turn: two slots by the model, and what came of the call.

    `tool` and `args` are None if the call did not parse. `observation` is the text the
    model got to see, already cut, and None after an answer.
    """

    slots: tuple[Slot, Slot] = field(repr=False)
    tool: str | None
    args: dict[str, Any] | None
    observation: str | None = None
    answer: str | None = None

    @property
    def thought(self) -> str:
        """The text of the thought."""
        return self.slots[0].text

    @property
    def call(self) -> str:
        """The text of the call as the model wrote it."""
        return self.slots[1].text

    @property
    def tokens(self) -> Count:
        """Tokens of thought and call together."""
        return total([slot.tokens for slot in self.slots])

    @property
    def forwarded(self) -> Count:
        """Positions that went through the model in this step."""
        return total([slot.forwarded for slot in self.slots])

    @property
    def reused(self) -> Count:
        """Positions that the cache already held when the two slots began."""
        return total([slot.reused for slot in self.slots])

    @property
    def legal_min(self) -> int | None:
        """The fewest legal tokens met in the call; None if it was not constrained."""
        return self.slots[1].legal_min

    @property
    def mass_kept(self) -> float | None:
        """The share of probability the model gave to legal tokens of the call."""
        return self.slots[1].mass_kept

    @property
    def attempts(self) -> int:
        """How many replies it took until a call parsed, or none was left to try."""
        return self.slots[1].attempts

    @property
    def forced(self) -> bool:
        """Whether the grammar had to write the end of the call."""
        return self.slots[1].forced

    def to_json(self) -> dict[str, Any]:
        """The step as a plain dict."""
        plain = {name: getattr(self, name) for name in _SHOWN + _COUNTED}
        mass = plain["mass_kept"]
        return plain | {"mass_kept": None if mass is None else round(mass, 4)}

    def json_line(self, number: int) -> str:
        """The step as a line of JSON, with its number and a line break."""
        return one_line_json({"step": number} | self.to_json()) + "\n"

    def __str__(self) -> str:
        legal = f"legal min {self.legal_min}"
        if self.legal_min is None:
            by_server = self.slots[1].constrained
            legal = "constrained by the server" if by_server else "unconstrained"
        work = f"forwarded {_known(self.forwarded)}, reused {_known(self.reused)}"
        forced = ", forced" if self.forced else ""
        again = f", {self.attempts} attempts" if self.attempts > 1 else ""
        lines = [
            f"THOUGHT: {protocol.one_line(self.thought)}",
            f"CALL: {protocol.one_line(self.call)}",
            f"      [{_known(self.tokens)} tokens, {legal}, {work}{forced}{again}]",
        ]
        if self.observation is not None:
            seen = observation_literal(self.observation, len(self.observation))
            lines.append(f"OBSERVATION: {seen}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Trace:
    """A whole run: the task, the steps, the answer if there is one, why it ended.

    `reason` is "answered", "max_steps", "repeated" (the same action with the same
    observation twice in a row), "context_full" or "time_up". `token_ids` is the
    transcript, with what was begun when time or context ran out.
    """

    task: str
    answer: str | None
    steps: tuple[Step, ...]
    reason: str
    token_ids: tuple[int, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The run as a plain dict, without ids: task, answer, reason, steps."""
        steps = [step.to_json() for step in self.steps]
        return {
            "task": self.task,
            "answer": self.answer,
            "reason": self.reason,
            "steps": steps,
        }

    def json_lines(self) -> str:
        """The run as JSON lines: one a step, numbered from 1, and one for the end."""
        lines = [step.json_line(i) for i, step in enumerate(self.steps, start=1)]
        return "".join([*lines, self.json_end()])

    def json_end(self) -> str:
        """The last of the JSON lines: task, answer and reason."""
        end = {"task": self.task, "answer": self.answer, "reason": self.reason}
        return one_line_json(end) + "\n"

    def end(self) -> str:
        """Why the run stopped, as a line, or "" if it was answered."""
        return "" if self.reason == "answered" else f"STOPPED: {self.reason}"

    def __str__(self) -> str:
        return "\n".join(filter(None, [*map(str, self.steps), self.end()]))


def _known(count: Count) -> int | str:
    return "?" if count is None else count
