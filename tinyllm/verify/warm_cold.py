"""The cache-reuse invariant: what a backend did before never changes what it writes.

`verify_cache(load, tools, tasks)` lets the agent solve each task cold (a model loaded
anew), then warm (one backend, reset between), interleaved (in another order, never
reset), and after failures half-way. Ids, and so the text, must be those of the cold
run, and each prefix of a transcript must give the logits of a cold pass. All of it is
done in each of `ARMS`: under the grammar, without one, and at temperature 1.

Before: verify.injected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyllm.agent.local import LocalBackend
from tinyllm.agent.loop import Agent
from tinyllm.agent.tools import Registry
from tinyllm.decode.threads import one_blas_thread
from tinyllm.engine import Engine
from tinyllm.errors import UsageError
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.progress import ignore
from tinyllm.verify.equivalence import difference, full_forward, limit_of
from tinyllm.verify.injected import InjectedError, fused, light

TASKS = (
    "What is 4871 * 209?",
    "What is 4871 + 36?",  # shares a prefix with the first, beyond the tools
    "Read notes.txt.",
    "Multiply 12 by 31.",
)
ARMS: dict[str, dict[str, Any]] = {
    "constrained": {},
    "free": {"constrain": False},
    "temperature 1": {"temperature": 1.0},
}
STEPS = 2  # of the agent a task: after so many, a difference would have shown

Load = Callable[[], NumpyEngine]
OnRun = Callable[[], object]


@dataclass(frozen=True)
class Run:
    """What the agent made of a task: every id, and how many positions it reused."""

    token_ids: tuple[int, ...]
    reused: int


Solve = Callable[[LocalBackend, str], Run]
Runs = dict[str, Run]


@dataclass(frozen=True)
class Verdict:
    """One prompt, which is a task in an arm: its cold run, and that of each other way.

    `prefixes`: every prefix of the transcript gave the logits of a cold pass.
    """

    task: str
    arm: str
    cold: Run
    runs: Runs
    prefixes: bool

    @property
    def same(self) -> dict[str, bool]:
        """Return for each way whether its ids are those of the cold run."""
        ids = self.cold.token_ids
        equal = {way: run.token_ids == ids for way, run in self.runs.items()}
        return equal | {"prefixes": self.prefixes}

    @property
    def passed(self) -> bool:
        """Return whether no way made a difference."""
        return all(self.same.values())


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return "PASS", or "FAIL" with the number of prompts that diverged."""
    diverged = sum(not verdict.passed for verdict in verdicts)
    prompts = f"{len(verdicts)} prompt" + "s" * (len(verdicts) != 1)
    return f"FAIL: {diverged} of {prompts} diverged" if diverged else "PASS"


class Unreset(LocalBackend):
    """A backend that keeps its session: its own search must find what is shared."""

    def reset(self) -> None:
        """Set the samplers back to the seed, as `LocalBackend` does, and no more."""
        kept, self.session = self.session, self.lm.session()
        super().reset()
        self.session = kept


def verify_cache(
    load: Load,
    tools: Registry,
    tasks: Sequence[str] = TASKS,
    on_run: OnRun = ignore,
    steps: int = STEPS,
) -> list[Verdict]:
    """Return a verdict for each task in each arm; `on_run` is called `n_runs` times.

    `load` returns the engine anew each time: it is called for every cold run, and once
    for all the warm ones. A run ends after so many `steps` of the agent, answered or
    not. Raises UsageError for no tasks, or for one that does not fit into the context.
    """
    if not tasks:
        raise UsageError("give one task or more")

    def solve(backend: LocalBackend, task: str) -> Run:
        before = backend.session.reused
        trace = Agent(backend, max_steps=steps).run(task)
        on_run()
        return Run(trace.token_ids, backend.session.reused - before)

    lm = load()
    failing = fused(lm)
    verdicts = []
    with one_blas_thread():
        for arm, options in ARMS.items():
            cold = {t: solve(LocalBackend(load(), tools, **options), t) for t in tasks}
            warm = LocalBackend(lm, tools, **options)
            unreset = Unreset(lm, tools, **options)
            broken = Unreset(failing, tools, **options)
            ways = {
                "warm": {task: solve(warm, task) for task in tasks},
                "interleaved": _interleaved(solve, unreset, tasks),
                "after a failure": _after_failures(solve, broken, failing, tasks),
            }
            for task in tasks:
                runs = {way: done[task] for way, done in ways.items()}
                same = _prefixes(lm, cold[task].token_ids)
                verdicts.append(Verdict(task, arm, cold[task], runs, same))
    return verdicts


def n_runs(tasks: Sequence[str]) -> int:
    """Return how many runs of the agent it takes, those that fail not counted."""
    return len(ARMS) * (4 * len(tasks) + 1)


def _interleaved(solve: Solve, backend: Unreset, tasks: Sequence[str]) -> Runs:
    """Return the run of each task, from the last to the first, never reset.

    The first also runs before all of them, so that each comes after another one.
    """
    solve(backend, tasks[0])
    return {task: solve(backend, task) for task in tasks[::-1]}


def _after_failures(
    solve: Solve, backend: Unreset, failing: NumpyEngine, tasks: Sequence[str]
) -> Runs:
    """Return the run of each task that failed twice just before.

    First half-way through the prefill, then in the middle of a decode step. What was
    cached before is the transcript of another task.
    """
    runs = {}
    for task in tasks:
        for passes in (0, 5):  # complete ones before the one that fails
            light(failing, passes)
            with suppress(InjectedError):
                solve(backend, task)
        light(failing, None)
        runs[task] = solve(backend, task)
    return runs


def _prefixes(lm: Engine, token_ids: Sequence[int]) -> bool:
    """Return whether prefixes of 1 to n ids, each prefilled in turn, give cold logits.

    Bit for bit in exact mode, to rounding in the fast one.
    """
    session = lm.session()
    token_ids = token_ids[: session.n_ctx]  # the last ids may never have been forwarded
    right = full_forward(lm, token_ids)  # (T, V)
    ends = range(1, len(token_ids) + 1)
    warm = np.stack([lm.prefill(session, token_ids[:n]) for n in ends])  # (T, V)
    if lm.exact:
        return np.array_equal(warm, right)
    return difference(warm, right) <= limit_of(right)
