"""How many held-out tasks an agent solves, family by family, with an interval.

`measure(lm, family, n, seed)` runs the real loop with real tools on `n` tasks whose
numbers, names and phrasings no training text contains, and returns a `Score`. A task is
solved when the answer is exactly right and every tool it needs was called.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tinyllm.agent import tools
from tinyllm.agent.local import LocalBackend
from tinyllm.agent.loop import Agent
from tinyllm.agent.trace import Trace
from tinyllm.evaluate.statistics import percent, spread, wilson
from tinyllm.progress import ignore
from tinyllm.train.tasks import Task, make

Progress = Callable[[int], object]
MAX_STEPS = 5  # of a run; no task needs more than 3
HEADER = "family     solved          share, %   95 % interval"


@dataclass(frozen=True)
class Score:
    """The result of one family: `solved` of `tasks`, and the work that it took."""

    family: str
    tasks: int
    solved: int
    steps: int
    tokens: int
    failures: tuple[tuple[Task, Trace], ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the share solved. Source: Wilson 1927."""
        return wilson(self.solved, self.tasks)

    def __str__(self) -> str:
        share = percent(self.solved / self.tasks)
        return (
            f"{self.family:10} {self.solved:4} of {self.tasks:4}   {share:>8}"
            f"   {spread(self.solved, self.tasks)}"
        )


def registry(task: Task, folder: Path) -> tools.Registry:
    """Return the tools of `task` in its order: the package's own, the rest scripted."""
    for name, text in task.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    own = {tool.name: tool for tool in tools.every(folder)}
    replies = {move.tool: move.observation or "" for move in task.moves}
    return tools.Registry(
        own.get(name) or scripted(name, arguments, replies.get(name, ""))
        for name, arguments in task.tools.items()
    )


def scripted(name: str, arguments: tuple[str, ...], reply: str) -> tools.Tool:
    """Return a tool that takes texts and always returns `reply`."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {argument: {"type": "string"} for argument in arguments},
        "required": list(arguments),
        "additionalProperties": False,
    }
    return tools.Tool(name, "A scripted tool.", schema, lambda **_: reply)


def solved(task: Task, trace: Trace) -> bool:
    """Return whether the answer is right and every tool that is needed was called."""
    called = {step.tool for step in trace.steps}
    return trace.answer == task.answer and called >= {move.tool for move in task.moves}


def tasks(family: str, n: int, seed: int) -> Iterator[Task]:
    """Yield the first `n` held-out tasks of `family`; a larger `n` only adds some."""
    rng = random.Random(f"{family} {seed}")  # a text: the same on every machine
    for _ in range(n):
        yield make(family, rng, held=True)


def tasks_with_tools(
    family: str, n: int, seed: int, first: int = 0
) -> Iterator[tuple[int, Task, tools.Registry]]:
    """Yield the tasks `first` to `n` - 1, each with its number and its tools.

    The files of a task exist, in a folder of its own, until the next one is asked for.
    """
    for number, task in enumerate(tasks(family, n, seed)):
        if number >= first:
            with TemporaryDirectory() as folder:
                yield number, task, registry(task, Path(folder))


def measure(
    lm: Any,
    family: str,
    n: int,
    seed: int = 0,
    progress: Progress = ignore,
    **options: Any,
) -> Score:
    """Return the score of `lm` on `n` held-out tasks; `options` go to the backend."""
    backend = LocalBackend(lm, tools.default(), **options)
    good = steps = 0
    failures = []
    for number, task, registry_ in tasks_with_tools(family, n, seed):
        trace = Agent(backend, registry_, MAX_STEPS).run(task.question)
        steps += len(trace.steps)
        if solved(task, trace):
            good += 1
        else:
            failures.append((task, trace))
        progress(number + 1)
    return Score(family, n, good, steps, backend.tokens, tuple(failures))
