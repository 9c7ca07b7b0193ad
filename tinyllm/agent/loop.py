"""The agent loop: thought, call, observation, until an answer or a limit.

Public: `Agent`.

The transcript is one growing list of token ids: the ids of the scaffolding, each piece
encoded alone, and the ids of the slots as the model produced them. It is never decoded
and encoded again. A tool's text enters it as one JSON string literal: data, whatever it
looks like.

Before: agent.trace. Next: train.operations.
"""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Callable
from typing import Any

from tinyllm.agent import protocol
from tinyllm.agent.backend import Backend, Listener, Slot, check_seconds
from tinyllm.agent.local import LocalBackend
from tinyllm.agent.protocol import encode_pieces, observation_literal, parse_call
from tinyllm.agent.tools import ANSWER, Registry, default
from tinyllm.agent.trace import Step, Trace
from tinyllm.errors import (
    ContextFullError,
    InferenceError,
    ProtocolError,
    ServerError,
    TimeUpError,
    ToolError,
    UsageError,
    check_int,
)
from tinyllm.progress import ignore

OnEvent = Callable[[str, str], object]
OnStep = Callable[[Step], object]
MAX_SECONDS = 600.0  # of a run: nobody waits for longer


class Agent:
    """A model (or a backend) with tools that solves a task step by step.

    `lm_or_backend` is the result of `tinyllm.load`, or a Backend, which takes over the
    `tools` if there are any; else it keeps its own, and a model gets the default ones.
    The prompt has an `instruction` between tools and task. A run ends after `max_steps`
    or after `max_seconds` on the `clock` (None: never), which it checks with each piece
    of text, and which bounds how long a server is waited for; it does not interrupt a
    tool. LocalBackend gets the other options: temperature, constrain, seed,
    keep_choices, attempts, max_thought, max_call.
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
        check_int("max_steps", max_steps, 1)
        check_int("observation_limit", observation_limit, 1)
        if max_seconds is not None:
            check_seconds("max_seconds", max_seconds)
        self.backend: Backend = _backend(lm_or_backend, tools, options)
        self.max_steps = max_steps
        self.observation_limit = observation_limit
        self.instruction = instruction
        self.max_seconds = max_seconds
        self.clock = clock
        self._end = math.inf  # of the run, on the clock

    def run(
        self,
        task: str,
        on_event: OnEvent = ignore,
        on_step: OnStep = ignore,
    ) -> Trace:
        """Return the trace of solving the task; each run starts from an empty session.

        `on_event(kind, text)` gets kind "thought" and "call" with the text piece by
        piece (the first is empty), and "observation" with the complete literal;
        `on_step` gets each step when it is done. UsageError if the task is empty or
        does not fit into the context, or if no tool could end the run. A ServerError
        has the trace so far as its `trace`.
        """
        token_ids = self._prompt(task)  # grows in place from here on
        self.backend.reset()
        self._end = math.inf
        if self.max_seconds is not None:
            self._end = self.clock() + self.max_seconds
        task = protocol.clean_task(task)
        steps: list[Step] = []
        reason = ""
        while not reason:
            try:
                steps.append(self._step(token_ids, on_event))
            except ContextFullError:  # the steps so far are worth keeping
                reason = "context_full"
            except TimeUpError:
                reason = "time_up"
            except ServerError as error:  # what was done until now may have cost hours
                error.trace = _trace(task, steps, "server_error", token_ids)
                raise
            else:
                on_step(steps[-1])  # out here, so that its own errors come through
                reason = self._ended(steps)
        return _trace(task, steps, reason, token_ids)

    def _seconds_left(self) -> float:
        """Return the seconds until the run must be over; inf if it may go on."""
        return math.inf if self._end == math.inf else self._end - self.clock()

    def _prompt(self, task: str) -> list[int]:
        """Return the ids of tools and task; UsageError if no thought could follow."""
        tokenizer, n_ctx = self.backend.tokenizer, self.backend.n_ctx
        if ANSWER not in self.backend.tools:
            raise UsageError(
                f"no tool is named {ANSWER!r}, which ends a run, among "
                f"{self.backend.tools.describe() or 'no tools'}: add tools.answer"
            )
        tools = self.backend.tools.describe()
        token_ids = protocol.prompt_ids(tokenizer, tools, task, self.instruction)
        length = len(token_ids) + len(tokenizer.encode(protocol.THOUGHT))
        if length >= n_ctx:  # not even one token of a thought would fit
            raise UsageError(
                f"the task is too long: with its tools it takes {length} tokens, and "
                f"this model has a context of {n_ctx}; shorten it or give fewer tools"
            )
        return token_ids

    def _step(self, token_ids: list[int], on_event: OnEvent) -> Step:
        """Return one turn; its ids are appended to the transcript."""
        slots = (
            self._slot("thought", protocol.THOUGHT, token_ids, on_event),
            self._slot("call", protocol.CALL, token_ids, on_event),
        )
        step = self._acted(slots)  # the only line that acts
        if step.observation is not None:
            literal = observation_literal(step.observation, self.observation_limit)
            pieces = [protocol.OBSERVATION, literal]
            token_ids += encode_pieces(self.backend.tokenizer, pieces)
            on_event("observation", literal)
        return step

    def _slot(
        self, kind: str, label: str, token_ids: list[int], on_event: OnEvent
    ) -> Slot:
        """Return the slot after this label; the ids of both are appended."""

        def on_text(text: str) -> None:
            on_event(kind, text)
            if self._seconds_left() <= 0:
                raise TimeUpError

        token_ids += self.backend.tokenizer.encode(label)
        on_text("")
        ask = self.backend.thought if kind == "thought" else self.backend.call
        slot = ask(token_ids, Listener(on_text, self._seconds_left))
        spelling = map(self.backend.tokenizer.token_bytes, slot.token_ids)
        if any(b"\n" in part for part in spelling):
            # a second line could begin with CALL: or OBSERVATION:
            raise InferenceError(
                f"the backend wrote more than one line as its {kind}: {slot.text!r:.60}"
            )
        token_ids += slot.token_ids
        return slot

    def _acted(self, slots: tuple[Slot, Slot]) -> Step:
        """Return the step that results from carrying out the call.

        A call that does not parse, or a tool that fails, is an observation.
        """
        tool, args = None, None
        try:
            tool, args = parse_call(slots[1].text)
            # the name is looked up in the registry, and nowhere else
            result = self.backend.tools.run(tool, args)
        except (ProtocolError, ToolError) as error:
            return Step(slots, tool, args, self._cut(f"error: {error}"))
        if tool == ANSWER:
            return Step(slots, tool, args, answer=result)
        return Step(slots, tool, args, self._cut(result))

    def _cut(self, text: str) -> str:
        """Return the text as the model reads it: the value of its literal."""
        # through the literal and back: cut, and without half characters
        return str(json.loads(observation_literal(text, self.observation_limit)))

    def _ended(self, steps: list[Step]) -> str:
        """Return why the run is over after these steps, or "" if it goes on."""
        if steps[-1].answer is not None:
            return "answered"
        # a model that repeats itself and gets the same reply would go on like that
        if len(steps) > 1 and _action(steps[-1]) == _action(steps[-2]):
            return "repeated"
        return "max_steps" if len(steps) >= self.max_steps else ""


def _trace(task: str, steps: list[Step], reason: str, token_ids: list[int]) -> Trace:
    """Return the record of these steps."""
    answer = steps[-1].answer if steps else None
    return Trace(task, answer, tuple(steps), reason, tuple(token_ids))


def _backend(thing: Any, tools: Registry | None, options: dict[str, Any]) -> Backend:
    """Return the thing itself if it is a backend, else a local one around it."""
    names = [*inspect.signature(Agent).parameters][1:-1]  # but lm_or_backend, **options
    names += [*inspect.signature(LocalBackend).parameters][2:]  # but lm, tools
    if wrong := [name for name in options if name not in names]:
        raise UsageError(f"Agent has no option {wrong[0]!r}: it has {', '.join(names)}")
    if tools is not None and not isinstance(tools, Registry):
        raise UsageError(
            f"tools must be a Registry, not {tools!r:.40}: write Registry([...])"
        )
    # by what it can do, not by its class: a test writes a backend in a few lines
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
    """Return what must be the same for a step to count as repeated."""
    call = step.call if step.tool is None else (step.tool, step.args)
    return call, step.observation
