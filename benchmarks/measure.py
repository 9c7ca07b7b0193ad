"""What the benchmarks share: child processes on one thread, rounds, rows of a table."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def environment() -> dict[str, str]:
    """This process's variables, one BLAS thread, no kernel forced on OpenBLAS."""
    forced = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
    kept = {k: v for k, v in os.environ.items() if k not in forced}
    return kept | dict.fromkeys(ONE_THREAD, "1")


def child(*arguments: str) -> str:
    """What `python ARGUMENTS` prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment(), check=True, capture_output=True, text=True
    ).stdout


def timed(action: Callable[[], object]) -> float:
    """How many seconds `action` takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def interleaved(
    *actions: Callable[[], object], rounds: int = 200, repeat: int = 10
) -> list[list[float]]:
    """The time of each action in seconds, round by round, all measured in turn."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for kept, action in zip(times, actions, strict=True):
            kept.append(timed(lambda: [action() for _ in range(repeat)]) / repeat)  # noqa: B023
    return times


def share(part: list[float], whole: list[float]) -> float:
    """The median over the rounds of part / whole: a machine's drift falls out of it."""
    return statistics.median(p / w for p, w in zip(part, whole, strict=True))


def row(what: str, value: str, remark: str = "") -> None:
    """Print one line of the table."""
    print(f"{what:38}{value:>12}   {remark}".rstrip(), flush=True)
