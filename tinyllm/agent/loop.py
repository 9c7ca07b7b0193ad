"""The agent loop: thought, call, observation, until an answer or a bound.

Public: `Agent`, `Trace`, `Step`.

The transcript is one growing list of token ids: the ids of the scaffolding, each piece
encoded alone, and the ids of the slots as the model produced them. It is never decoded
and encoded again. What a tool says enters as one JSON string literal: data, whatever it
looks like.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tinyllm.agent import protocol
from tinyllm.agent.local import LocalBackend, OnText, Slot
from tinyllm.agent.protocol import encode_pieces, observation_literal, parse_call
from tinyllm.agent.tools import ANSWER, Registry, default
from tinyllm.errors import ContextFullError, ProtocolError, ToolError, UsageError

OnEvent = Callable[[str, str], object]

_SHOWN = ("thought", "call", "tool", "args", "observation", "answer")
_COUNTED = ("tokens", "forwarded", "reused", "legal_min", "forced")


class Backend(Protocol):
    """What the loop needs of a backend: slots for a transcript, and its limits."""

    tokenizer: Any
    n_ctx: int
    tools: Registry

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools."""

    def reset(self) -> None:
        """Start afresh."""

    def thought(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The thought that follows the transcript."""

    def call(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The call that follows the transcript."""


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
    def tokens(self) -> int:
        """Tokens of thought and call together."""
        return sum(slot.tokens for slot in self.slots)

    @property
    def forwarded(self) -> int:
        """Positions that went through the model in this step."""
        return sum(slot.forwarded for slot in self.slots)

    @property
    def reused(self) -> int:
        """Positions that the cache already held when the two slots began."""
        return sum(slot.reused for slot in self.slots)

    @property
    def legal_min(self) -> int | None:
        """The fewest legal tokens met in the call; None if it was not constrained."""
        return self.slots[1].legal_min

    @property
    def forced(self) -> bool:
        """Whether the grammar had to write the end of the call."""
        return self.slots[1].forced

    def to_json(self) -> dict[str, Any]:
        """The step as a plain dict."""
        return {name: getattr(self, name) for name in _SHOWN + _COUNTED}

    def __str__(self) -> str:
        constrained = self.slots[1].constrained
        legal = f"legal min {self.legal_min}" if constrained else "unconstrained"
        work = f"forwarded {self.forwarded}, reused {self.reused}"
        forced = ", forced" if self.forced else ""
        lines = [
            f"THOUGHT: {protocol.one_line(self.thought)}",
            f"CALL: {protocol.one_line(self.call)}",
            f"      [{self.tokens} tokens, {legal}, {work}{forced}]",
        ]
        if self.observation is not None:
            seen = observation_literal(self.observation, len(self.observation))
            lines.append(f"OBSERVATION: {seen}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Trace:
    """A whole run: the task, the steps, the answer if there is one, why it ended.

    `reason` is "answered", "max_steps", "repeated" (the same action with the same
    observation twice in a row) or "context_full". `token_ids` is the transcript.
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

    def __str__(self) -> str:
        stopped = [] if self.reason == "answered" else [f"STOPPED: {self.reason}"]
        return "\n".join([*map(str, self.steps), *stopped])


class Agent:
    """A model (or a backend) with tools, that solves a task step by step.

    `lm_or_backend` is what `tinyllm.load` returns, or a Backend. Without tools it gets
    those of the backend, or the default ones. The options of LocalBackend are handed on
    to it: temperature, constrain, seed, keep_choices.
    """

    def __init__(
        self,
        lm_or_backend: Any,
        tools: Registry | None = None,
        max_steps: int = 8,
        observation_limit: int = protocol.OBSERVATION_LIMIT,
        **options: Any,
    ) -> None:
        limits = max_steps, observation_limit
        if not all(isinstance(n, int) and n >= 1 for n in limits):
            raise UsageError(
                f"max_steps and observation_limit must be 1 or more, not {limits!r:.40}"
            )
        self.backend: Backend = _backend(lm_or_backend, tools, options)
        self.max_steps = max_steps
        self.observation_limit = observation_limit

    def run(self, task: str, on_event: OnEvent | None = None) -> Trace:
        """The trace of solving the task; starts from an empty session each time.

        `on_event(kind, text)` gets kind "thought" and "call" with the text piece by
        piece (the first is empty), and "observation" with the whole literal.
        UsageError if the task is empty or does not fit into the context, or if no tool
        could end the run.
        """
        token_ids = self._prompt(task)
        self.backend.reset()
        steps: list[Step] = []
        reason = ""
        while not reason:
            try:
                steps.append(self._step(token_ids, on_event or _ignore))
                reason = self._ended(steps)
            except ContextFullError:
                reason = "context_full"
        answer = steps[-1].answer if steps else None
        task = protocol.clean_task(task)
        return Trace(task, answer, tuple(steps), reason, tuple(token_ids))

    def _prompt(self, task: str) -> list[int]:
        """The ids of tools and task; UsageError if no thought could follow them."""
        tokenizer, n_ctx = self.backend.tokenizer, self.backend.n_ctx
        if ANSWER not in self.backend.tools:
            raise UsageError(
                f"no tool is named {ANSWER!r}, which ends a run, among "
                f"{self.backend.tools.describe() or 'no tools'}: add tools.answer"
            )
        tools = self.backend.tools.describe()
        token_ids = protocol.prompt_ids(tokenizer, tools, task)
        length = len(token_ids) + len(tokenizer.encode(protocol.THOUGHT))
        if length >= n_ctx:
            raise UsageError(
                f"the task is too long: with its tools it takes {length} tokens, and "
                f"this model has a context of {n_ctx}; shorten it or give fewer tools"
            )
        return token_ids

    def _step(self, token_ids: list[int], tell: OnEvent) -> Step:
        """One turn, whose ids are appended to the transcript."""
        slots = (
            self._slot("thought", protocol.THOUGHT, token_ids, tell),
            self._slot("call", protocol.CALL, token_ids, tell),
        )
        step = self._acted(slots)
        if step.observation is not None:
            literal = observation_literal(step.observation, self.observation_limit)
            pieces = [protocol.OBSERVATION, literal]
            token_ids += encode_pieces(self.backend.tokenizer, pieces)
            tell("observation", literal)
        return step

    def _slot(self, kind: str, label: str, token_ids: list[int], tell: OnEvent) -> Slot:
        """The slot after this label; the ids of both are appended as they are."""
        token_ids += self.backend.tokenizer.encode(label)
        tell(kind, "")
        ask = self.backend.thought if kind == "thought" else self.backend.call
        slot = ask(token_ids, lambda text: tell(kind, text))
        token_ids += slot.token_ids
        return slot

    def _acted(self, slots: tuple[Slot, Slot]) -> Step:
        """The step that results from doing what the call says.

        A call that does not parse, or a tool that fails, is an observation.
        """
        tool, args = None, None
        try:
            tool, args = parse_call(slots[1].text)
            result = self.backend.tools.run(tool, args)
        except (ProtocolError, ToolError) as error:
            return Step(slots, tool, args, self._cut(f"error: {error}"))
        if tool == ANSWER:
            return Step(slots, tool, args, answer=result)
        return Step(slots, tool, args, self._cut(result))

    def _cut(self, text: str) -> str:
        """The text as the model will see it: what its literal says."""
        return str(json.loads(observation_literal(text, self.observation_limit)))

    def _ended(self, steps: list[Step]) -> str:
        """Why the run is over after these steps, or "" if it goes on."""
        if steps[-1].answer is not None:
            return "answered"
        if len(steps) > 1 and _action(steps[-1]) == _action(steps[-2]):
            return "repeated"
        return "max_steps" if len(steps) >= self.max_steps else ""


def _backend(thing: Any, tools: Registry | None, options: dict[str, Any]) -> Backend:
    """The thing itself if it is a backend, else a local one around it."""
    if tools is not None and not isinstance(tools, Registry):
        raise UsageError(
            f"tools must be a Registry, not {tools!r:.40}: write Registry([...])"
        )
    if not hasattr(thing, "thought"):
        mine = default() if tools is None else tools
        return LocalBackend(thing, mine, **options)
    if options:
        given = ", ".join(options)
        raise UsageError(f"give {given} to the backend: it is made already")
    if tools is not None:
        thing.set_tools(tools)
    return thing  # type: ignore[no-any-return]


def _action(step: Step) -> tuple[object, ...]:
    """What must be the same for a step to count as repeated."""
    asked = step.call if step.tool is None else (step.tool, step.args)
    return asked, step.observation


def _ignore(kind: str, text: str) -> None:
    """The listener of a run to which nobody listens."""
