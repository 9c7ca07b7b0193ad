"""How many held-out tasks an agent solves, family by family, with an interval.

`measure(lm, family, n, seed)` runs the real loop with real tools on `n` tasks whose
numbers, names and phrasings training has not seen, and returns a `Score`. A task is
solved when the answer is exactly right and every tool it needs was called.
"""

from __future__ import annotations

import math
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
from tinyllm.train.tasks import Task, make

Progress = Callable[[int], object]
MAX_STEPS = 5  # of a run; no task needs more than 3
HEADER = "family     solved         share   95 % interval"


@dataclass(frozen=True)
class Score:
    """The count of one family: `solved` of `tasks`, and the work that it took."""

    family: str
    tasks: int
    solved: int
    steps: int
    tokens: int
    failures: tuple[tuple[Task, Trace], ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share solved. Source: Wilson 1927."""
        return wilson(self.solved, self.tasks)

    def __str__(self) -> str:
        low, high = self.interval
        share = self.solved / self.tasks
        return (
            f"{self.family:10} {self.solved:4} of {self.tasks:4}   {share:6.1%}"
            f"   ({low:.1%} to {high:.1%})"
        )


def wilson(k: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The interval that holds a share of which `k` of `n` were seen, 95 % of the time.

    >>> [round(x, 3) for x in wilson(25, 25)]
    [0.867, 1.0]
    """
    share, spread = k / n, z * z / n
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    return max(0.0, (middle - half) / (1 + spread)), min(
        1.0, (middle + half) / (1 + spread)
    )


def registry(task: Task, folder: Path) -> tools.Registry:
    """The tools of `task` in its order: the package's own, the others as scripted."""
    for name, text in task.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    own = {tool.name: tool for tool in tools.every(folder)}
    replies = {move.tool: move.observation or "" for move in task.moves}
    return tools.Registry(
        own.get(name) or scripted(name, arguments, replies.get(name, ""))
        for name, arguments in task.tools.items()
    )


def scripted(name: str, arguments: tuple[str, ...], reply: str) -> tools.Tool:
    """A tool that takes texts and always says `reply`."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {argument: {"type": "string"} for argument in arguments},
        "required": list(arguments),
        "additionalProperties": False,
    }
    return tools.Tool(name, "A scripted tool.", schema, lambda **_: reply)


def solved(task: Task, trace: Trace) -> bool:
    """Whether the answer is exactly right and every tool needed was called."""
    called = {step.tool for step in trace.steps}
    return trace.answer == task.answer and called >= {move.tool for move in task.moves}


def tasks(family: str, n: int, seed: int) -> Iterator[Task]:
    """The first `n` held-out tasks of `family`; more of them begin with the same."""
    rng = random.Random(f"{family} {seed}")
    for _ in range(n):
        yield make(family, rng, held=True)


def runs(
    backend: LocalBackend, family: str, n: int, seed: int
) -> Iterator[tuple[Task, Trace]]:
    """`n` held-out tasks of `family` and what the agent made of each."""
    for task in tasks(family, n, seed):
        with TemporaryDirectory() as folder:
            agent = Agent(backend, registry(task, Path(folder)), MAX_STEPS)
            yield task, agent.run(task.question)


def measure(
    lm: Any,
    family: str,
    n: int,
    seed: int = 0,
    progress: Progress = lambda done: None,
    **options: Any,
) -> Score:
    """The score of `lm` on `n` held-out tasks; `options` go to the backend."""
    backend = LocalBackend(lm, tools.default(), **options)
    good = steps = 0
    failures = []
    for done, (task, trace) in enumerate(runs(backend, family, n, seed), 1):
        steps += len(trace.steps)
        if solved(task, trace):
            good += 1
        else:
            failures.append((task, trace))
        progress(done)
    return Score(family, n, good, steps, backend.tokens, tuple(failures))
