"""What a grammar gives and what it does not: the same tasks, with one thing changed.

`outcomes(lm, condition, arm, family, n, seed)` runs the agent on held-out tasks and
judges each: whether its calls parsed and fitted their schema, which a grammar sees to,
and whether they were right, which is the model's own doing. ARMS say how a call comes
about, CONDITIONS which model meets which tools.

An arm differs from `free` in one thing only: an instruction, more attempts, or a mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints

from tinyllm.agent.local import LocalBackend
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import CALL_FORMAT
from tinyllm.agent.tools import Registry
from tinyllm.agent.trace import Step, Trace
from tinyllm.errors import ToolError, UsageError
from tinyllm.evaluate.held_out import MAX_STEPS, registry, solved, tasks
from tinyllm.evaluate.renamed_tools import renamed
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.train.tasks import Task


@dataclass(frozen=True)
class Arm:
    """One way to come to a call; `options` are those of the backend."""

    name: str
    about: str
    instruction: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Condition:
    """A model, the temperature it writes at, and whether its tools are new to it."""

    name: str
    about: str
    model: str
    temperature: float = 0.0
    unseen: bool = False


@dataclass(frozen=True)
class Outcome:
    """One task: its calls, how many parsed and fitted, what was right, what it cost.

    `right_tool` and `right_args` are of the first call, before anything can have led
    the model astray; `solved` is of the whole run. `mass_kept` is a mean over the
    calls, None without a mask.
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
        """Whether there was a call, and every call parsed."""
        return 0 < self.calls == self.n_parsed

    @property
    def valid(self) -> bool:
        """Whether every call also named a tool of the list with arguments that fit."""
        return 0 < self.calls == self.n_valid

    def to_json(self) -> dict[str, Any]:
        """The outcome as a plain dict."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote; TypeError for anything else."""
        found = cls(**plain)
        for name, kind in get_type_hints(cls).items():
            value = getattr(found, name)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                raise TypeError(f"{name} is {value!r:.40}")
        return found


_FREE: dict[str, Any] = {"constrain": False}
ARMS = {
    arm.name: arm
    for arm in (
        Arm("free", "the model writes what it likes", options=_FREE),
        Arm("instructed", "the prompt says what a call is", CALL_FORMAT, _FREE),
        Arm("retry", "asked again, up to 3 times", options=_FREE | {"attempts": 4}),
        Arm("mask", "only legal tokens can be chosen"),
    )
}
CONDITIONS = {
    condition.name: condition
    for condition in (
        Condition("trained", "the embedded model", "agent"),
        Condition("story-only", "the same size, trained on stories only", "stories"),
        Condition("unseen-tools", "all but answer renamed", "agent", unseen=True),
        Condition("temperature-1", "dice instead of the best", "agent", 1.0),
        Condition("early", "an early checkpoint", ""),
        Condition("smollm2", "SmolLM2-135M-Instruct, never trained for it", "smollm2"),
    )
}
USUAL = tuple(CONDITIONS)[:4]  # need no file but those in the package


def outcomes(
    lm: NumpyEngine,
    condition: Condition,
    arm: Arm,
    family: str,
    n: int,
    seed: int = 0,
    first: int = 0,
) -> Iterator[Outcome]:
    """The outcome of each of the tasks `first` to `n` - 1 of a family.

    Each is run from an empty session, with dice of its own: an outcome depends neither
    on those before it nor on where a run was taken up again.
    """
    backend: LocalBackend | None = None
    for number, task in enumerate(tasks(family, n, seed)):
        if number < first:
            continue
        with TemporaryDirectory() as folder:
            tools = registry(task, Path(folder))
            if condition.unseen:
                task, tools = renamed(task, tools)
            if backend is None:
                options = {"temperature": condition.temperature} | arm.options
                backend = LocalBackend(lm, tools, **options)
            backend.seed = seed + number
            agent = Agent(
                backend,
                tools,
                MAX_STEPS,
                instruction=arm.instruction,
                max_seconds=None,
            )
            before = backend.tokens, backend.session.forwarded
            trace = agent.run(task.question)
            tokens = backend.tokens - before[0]
            forwarded = backend.session.forwarded - before[1]
            outcome = judged(number, task, tools, trace)
            # with those of a last step that the context cut short
            yield replace(outcome, tokens=tokens, forwarded=forwarded)


def judged(number: int, task: Task, tools: Registry, trace: Trace) -> Outcome:
    """What a run of a task amounts to, and what its steps cost."""
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
        tokens=sum(step.tokens or 0 for step in steps),
        forwarded=sum(step.forwarded or 0 for step in steps),
        mass_kept=round(sum(masses) / len(masses), 4) if masses else None,
        reason=trace.reason,
    )


def _fits(step: Step, tools: Registry) -> bool:
    """Whether the call of a step fits the schema of its tools."""
    if step.tool is None or step.args is None:
        return False
    try:
        tools.check(step.tool, step.args)
    except ToolError:
        return False
    return True


def chosen(kind: str, known: dict[str, Any], names: list[str]) -> list[Any]:
    """Those of ARMS or CONDITIONS with these names; UsageError for an unknown one."""
    for name in names:
        if name not in known:
            raise UsageError(f"no {kind} {name!r}: there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]
