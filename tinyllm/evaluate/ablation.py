"""What a grammar gives and what it does not: the same tasks, with one thing changed.

`outcomes(lm, condition, arm, family, n, seed)` runs the agent on held-out tasks and
judges each: whether its calls parsed and fitted their schema, which a grammar ensures,
and whether they were right, which is the model's own doing. ARMS are the ways in which
a call is made, CONDITIONS name a model and the tools it gets.

An arm differs from `free` in one thing only: an instruction, more attempts, or a mask.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_type_hints

from tinyllm.agent.local import LocalBackend
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import CALL_FORMAT
from tinyllm.agent.tools import Registry, default
from tinyllm.agent.trace import Step, Trace
from tinyllm.engine import Engine
from tinyllm.errors import Named, ToolError
from tinyllm.evaluate.held_out import MAX_STEPS, solved, tasks_with_tools
from tinyllm.evaluate.renamed_tools import renamed
from tinyllm.train.tasks import Task


@dataclass(frozen=True)
class Arm:
    """One way in which a call is made; `options` are those of the backend."""

    name: str
    about: str
    instruction: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Condition:
    """A model, its temperature, and whether its tools are new to it."""

    name: str
    about: str
    model: str
    temperature: float = 0.0
    unseen: bool = False


@dataclass(frozen=True)
class Outcome:
    """One task: its calls, how many parsed and fitted, what was right, what it cost.

    `right_tool` and `right_args` are of the first call, before anything can have led
    the model astray; `solved` is of the run. `mass_kept`, the retained probability
    mass, is a mean over the calls, None without a mask.
    """

    family: str
    number: int
    calls: int
    n_parsed: int
    n_valid: int
    right_tool: bool
    right_args: bool
    solved: bool
    tokens: int
    forwarded: int
    mass_kept: float | None
    reason: str

    @property
    def parsed(self) -> bool:
        """Return whether there was a call, and every call parsed."""
        return 0 < self.calls == self.n_parsed

    @property
    def valid(self) -> bool:
        """Return whether every call also named a listed tool with fitting arguments."""
        return 0 < self.calls == self.n_valid

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as a plain dict."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Outcome:
        """Return the outcome that `to_json` wrote; TypeError for anything else."""
        found = cls(**plain)
        for name, kind in get_type_hints(cls).items():
            value = getattr(found, name)
            # True would pass for a count: bool is a kind of int
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise TypeError(f"{name} is {value!r:.40}")
        return found


_FREE: dict[str, Any] = {"constrain": False}
_ARMS = (
    Arm("free", "the model writes what it likes", options=_FREE),
    Arm("instructed", "the prompt says what a call is", CALL_FORMAT, _FREE),
    Arm("retry", "asked again, up to 3 times", options=_FREE | {"attempts": 4}),
    Arm("mask", "only legal tokens can be chosen"),
)
_CONDITIONS = (
    Condition("trained", "the embedded model", "agent"),
    Condition("story-only", "the same size, trained on stories only", "stories"),
    Condition("unseen-tools", "all but answer renamed", "agent", unseen=True),
    Condition("temperature-1", "drawn at random, not the most likely", "agent", 1.0),
    Condition("early", "an early checkpoint", ""),
    Condition("smollm2", "SmolLM2-135M-Instruct, never trained for it", "smollm2"),
)
ARMS = Named("arm", {arm.name: arm for arm in _ARMS})
CONDITIONS = Named("condition", {c.name: c for c in _CONDITIONS})
USUAL = tuple(CONDITIONS)[:4]  # these need no file but those in the package


def outcomes(
    lm: Engine,
    condition: Condition,
    arm: Arm,
    family: str,
    n: int,
    seed: int = 0,
    first: int = 0,
) -> Iterator[Outcome]:
    """Yield the outcome of each of the tasks `first` to `n` - 1 of a family.

    Each is run from an empty session with a seed of its own: an outcome depends neither
    on those before it nor on where a run was resumed.
    """
    options = {"temperature": condition.temperature} | arm.options
    backend = LocalBackend(lm, default(), **options)
    for number, task, tools in tasks_with_tools(family, n, seed, first):
        if condition.unseen:  # the same task, its tools under other names
            task, tools = renamed(task, tools)
        backend.seed = seed + number
        agent = Agent(
            backend, tools, MAX_STEPS, instruction=arm.instruction, max_seconds=None
        )
        tokens, forwarded = backend.tokens, backend.session.forwarded
        trace = agent.run(task.question)
        # not summed over the steps: a last one that the context cut short counts too
        tokens = backend.tokens - tokens
        forwarded = backend.session.forwarded - forwarded
        yield judged(number, task, tools, trace, tokens, forwarded)


def sample(found: Sequence[Outcome], seed: int) -> list[Outcome]:
    """Return some outcomes to check, a twentieth, of tasks that came after others."""
    warm = [outcome for outcome in found if outcome.number]
    n = min(len(warm), math.ceil(len(found) / 20))
    return random.Random(seed).sample(warm, n)


def differing(
    lm: Engine,
    condition: Condition,
    arm: Arm,
    found: Sequence[Outcome],
    seed: int = 0,
) -> list[Outcome]:
    """Return those of the outcomes that a new backend does not give again."""

    def cold(n: int, family: str) -> Outcome:
        return next(outcomes(lm, condition, arm, family, n + 1, seed, first=n))

    return [one for one in found if cold(one.number, one.family) != one]


def judged(
    number: int,
    task: Task,
    tools: Registry,
    trace: Trace,
    tokens: int = 0,
    forwarded: int = 0,
) -> Outcome:
    """Return the outcome of a run that cost so many tokens and forwarded positions."""
    steps, right = trace.steps, task.moves[0]
    first = steps[0] if steps else None
    tool_is_right = first is not None and first.tool == right.tool
    masses = [step.mass_kept for step in steps if step.mass_kept is not None]
    return Outcome(
        family=task.family,
        number=number,
        calls=len(steps),
        n_parsed=sum(step.tool is not None for step in steps),
        n_valid=sum(_fits(step, tools) for step in steps),
        right_tool=tool_is_right,
        right_args=tool_is_right and first is not None and first.args == right.args,
        solved=solved(task, trace),
        tokens=tokens,
        forwarded=forwarded,
        mass_kept=round(sum(masses) / len(masses), 4) if masses else None,
        reason=trace.reason,
    )


def _fits(step: Step, tools: Registry) -> bool:
    """Return whether the call of a step fits the schema of its tools."""
    if step.tool is None or step.args is None:
        return False
    try:
        tools.check(step.tool, step.args)
    except ToolError:
        return False
    return True
