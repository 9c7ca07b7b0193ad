"""The cache-reuse invariant: what a backend did before never changes what it writes.

`verify_cache(lm, tools, tasks)` lets the agent solve each task cold (a fresh backend),
then warm (one backend, reset between), backwards and interleaved (another one, never
reset), and after failures half-way. Ids, and so the text, must be those of the cold
run, and each prefix of a transcript must give the logits of a cold pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tinyllm.agent.local import LocalBackend
from tinyllm.agent.loop import Agent
from tinyllm.agent.tools import Registry
from tinyllm.decode.threads import one_blas_thread
from tinyllm.engine import NumpyEngine
from tinyllm.errors import UsageError
from tinyllm.model.transformer import Model
from tinyllm.progress import ignore
from tinyllm.verify.equivalence import difference, limit_of
from tinyllm.verify.injected import Fused, InjectedError, fused

TASKS = (
    "What is 4871 * 209?",
    "What is 4871 + 36?",  # shares a prefix with the first, beyond the tools
    "Read notes.txt.",
    "Multiply 12 by 31.",
)
STEPS = 2  # of the agent a task: what is not over by then says enough

OnRun = Callable[[], object]


@dataclass(frozen=True)
class Run:
    """What the agent made of a task: every id, and how many positions it reused."""

    token_ids: tuple[int, ...]
    reused: int


@dataclass(frozen=True)
class Verdict:
    """One task: the run of each way that the cache was used, the cold one first."""

    task: str
    cold: Run
    runs: dict[str, Run]
    prefixes: bool  # every prefix of the transcript gave the logits of a cold pass

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


Solve = Callable[[LocalBackend, str], Run]


class _Unreset(LocalBackend):
    """A backend that never forgets by itself: what is shared, its session must find."""

    def reset(self) -> None:
        """Do nothing but the first time, when there is no sampler yet."""
        if not hasattr(self, "sampler"):
            super().reset()


def verify_cache(
    lm: NumpyEngine,
    tools: Registry,
    tasks: Sequence[str] = TASKS,
    on_run: OnRun = ignore,
    steps: int = STEPS,
) -> list[Verdict]:
    """Return a verdict for each task; `on_run` is called `n_runs(tasks)` times.

    A run ends after so many `steps` of the agent, answered or not. Raises UsageError
    for no tasks, for a task that does not fit into the context, and for an engine whose
    model cannot be made to fail.
    """
    if not tasks:
        raise UsageError("give one task or more")
    if not isinstance(lm.model, Model):
        raise UsageError(f"{lm!r} has no layers in which to inject a failure")

    def solve(backend: LocalBackend, task: str) -> Run:
        before = backend.session.reused
        trace = Agent(backend, max_steps=steps).run(task)
        return Run(trace.token_ids, backend.session.reused - before)

    def told(backend: LocalBackend, task: str) -> Run:
        run = solve(backend, task)
        on_run()
        return run

    with one_blas_thread():
        cold = {task: told(LocalBackend(lm, tools), task) for task in tasks}
        reset, unreset = LocalBackend(lm, tools), _Unreset(lm, tools)
        model = fused(lm.model)
        failing = _Unreset(NumpyEngine(model, lm.tokenizer, lm.name), tools)
        ways = {
            "warm": {task: told(reset, task) for task in tasks},
            "backwards": {task: told(unreset, task) for task in tasks[::-1]},
            "interleaved": _between(told, unreset, tasks),
            "after a failure": {
                task: _third_time(solve, told, model, failing, task) for task in tasks
            },
        }
        prefixes = {task: _prefixes(lm, cold[task].token_ids) for task in tasks}
    of = {task: {way: runs[task] for way, runs in ways.items()} for task in tasks}
    return [Verdict(task, cold[task], of[task], prefixes[task]) for task in tasks]


def n_runs(tasks: Sequence[str]) -> int:
    """Return how many runs of the agent it takes, those that fail not counted."""
    return 6 * len(tasks)


def _between(
    solve: Solve, backend: LocalBackend, tasks: Sequence[str]
) -> dict[str, Run]:
    """Return the run of each task, another one having been run just before it."""
    runs = {}
    for i, task in enumerate(tasks):
        solve(backend, tasks[i - 1])
        runs[task] = solve(backend, task)
    return runs


def _third_time(
    fails: Solve, solve: Solve, model: Fused, backend: LocalBackend, task: str
) -> Run:
    """Return the run of a task that failed twice before.

    First half-way through the prefill, then in the middle of a decode step. What was
    held before is the transcript of another task.
    """
    n_layers = model.config.n_layers
    for passes in (0, 5):  # complete ones before the one that fails
        model.fuse = passes * n_layers + n_layers // 2
        with suppress(InjectedError):
            fails(backend, task)
    model.fuse = None
    return solve(backend, task)


def _prefixes(lm: NumpyEngine, token_ids: Sequence[int]) -> bool:
    """Return whether prefixes of 1 to n ids, each fed in turn, give cold logits.

    Bit for bit in exact mode, to rounding in the fast one.
    """
    token_ids = token_ids[: lm.config.n_ctx]  # the last ids may never have been read
    session = lm.session()
    right = lm.model.forward(token_ids)  # (T, V)
    warm = [session.feed(token_ids[:n]) for n in range(1, len(token_ids) + 1)]
    if lm.model.exact:
        return np.array_equal(np.stack(warm), right)
    return difference(np.stack(warm), right) <= limit_of(right)
