"""The agent loop: thought, call, observation, until an answer or a bound.

Public: `Agent`.

The transcript is one growing list of token ids: the ids of the scaffolding, each piece
encoded alone, and the ids of the slots as the model produced them. It is never decoded
and encoded again. What a tool says enters as one JSON string literal: data, whatever it
looks like.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tinyllm.agent import protocol
from tinyllm.agent.backend import Backend, Slot
from tinyllm.agent.local import LocalBackend
from tinyllm.agent.options import duration, positive
from tinyllm.agent.protocol import encode_pieces, observation_literal, parse_call
from tinyllm.agent.tools import ANSWER, Registry, default
from tinyllm.agent.trace import Step, Trace
from tinyllm.errors import (
    ContextFullError,
    InferenceError,
    ProtocolError,
    ToolError,
    UsageError,
)

OnEvent = Callable[[str, str], object]
OnStep = Callable[[Step], object]
MAX_SECONDS = 600.0  # a run that takes longer is a run that nobody waits for


class Agent:
    """A model (or a backend) with tools, that solves a task step by step.

    `lm_or_backend` is what `tinyllm.load` returns, or a Backend, which takes over the
    tools, if some are given. Without tools it gets those of the backend, or the default
    ones. An `instruction` stands between tools and task. A run ends after `max_steps`
    or, looked at with each piece of text, `max_seconds` on the `clock` (None: never); a
    tool is not interrupted. The options of LocalBackend are handed on to it:
    temperature, constrain, seed, keep_choices, attempts.
    """

    def __init__(
        self,
        lm_or_backend: Any,
        tools: Registry | None = None,
        max_steps: int = 8,
        observation_limit: int = protocol.OBSERVATION_LIMIT,
        *,
        instruction: str = "",
        max_seconds: float | None = MAX_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        positive("max_steps", max_steps)
        positive("observation_limit", observation_limit)
        if max_seconds is not None:
            duration("max_seconds", max_seconds)
        self.backend: Backend = _backend(lm_or_backend, tools, options)
        self.max_steps = max_steps
        self.observation_limit = observation_limit
        self.instruction = instruction
        self.max_seconds = max_seconds
        self.clock = clock

    def run(
        self,
        task: str,
        on_event: OnEvent | None = None,
        on_step: OnStep | None = None,
    ) -> Trace:
        """The trace of solving the task; starts from an empty session each time.

        `on_event(kind, text)` gets kind "thought" and "call" with the text piece by
        piece (the first is empty), and "observation" with the whole literal;
        `on_step` gets each step when it is done. UsageError if the task is empty or
        does not fit into the context, or if no tool could end the run.
        """
        token_ids = self._prompt(task)
        self.backend.reset()
        tell = self._timed(on_event or _ignore)
        steps: list[Step] = []
        reason = ""
        while not reason:
            try:
                steps.append(self._step(token_ids, tell))
            except ContextFullError:
                reason = "context_full"
            except _TimeUpError:
                reason = "time_up"
            else:
                (on_step or _unheeded)(steps[-1])
                reason = self._ended(steps)
        answer = steps[-1].answer if steps else None
        task = protocol.clean_task(task)
        return Trace(task, answer, tuple(steps), reason, tuple(token_ids))

    def _timed(self, tell: OnEvent) -> OnEvent:
        """The listener, which ends the run where the model goes on for too long."""
        end = None if self.max_seconds is None else self.clock() + self.max_seconds

        def told(kind: str, text: str) -> None:
            tell(kind, text)
            if end is not None and kind != "observation" and self.clock() >= end:
                raise _TimeUpError

        return told

    def _prompt(self, task: str) -> list[int]:
        """The ids of tools and task; UsageError if no thought could follow them."""
        tokenizer, n_ctx = self.backend.tokenizer, self.backend.n_ctx
        if ANSWER not in self.backend.tools:
            raise UsageError(
                f"no tool is named {ANSWER!r}, which ends a run, among "
                f"{self.backend.tools.describe() or 'no tools'}: add tools.answer"
            )
        tools = self.backend.tools.describe()
        token_ids = protocol.prompt_ids(tokenizer, tools, task, self.instruction)
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
        spelled = map(self.backend.tokenizer.token_bytes, slot.token_ids)
        if any(b"\n" in part for part in spelled):
            told = f"the backend wrote more than one line as its {kind}"
            raise InferenceError(f"{told}: {slot.text!r:.60}")
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


class _TimeUpError(Exception):
    """The run has taken longer than it may; ends the slot that is being written."""


def _ignore(kind: str, text: str) -> None:
    """The listener of a run to which nobody listens."""


def _unheeded(step: Step) -> None:
    """The same for steps."""
