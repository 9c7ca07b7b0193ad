"""How many tokens a second the agent writes here, beside its forward passes alone.

    python benchmarks/agent.py [MODEL]

Whole runs of held-out tasks with `LocalBackend` on one core: prompts, masks, sampling
and tools included. The ceiling is the same prefill and decode calls, replayed with
nothing around them; ratios are medians over rounds in which all take turns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from statistics import median

from measure import child, interleaved, row, share

ROUNDS = 9
FAMILIES = ("calc", "read", "direct", "lookup")  # two tasks of each


class Recorder:
    """An engine that writes down what it is asked to forward."""

    def __init__(self, lm: object) -> None:
        self.lm, self.tokenizer = lm, lm.tokenizer
        self.asked: list[tuple] = []  # ("prefill", ids), ("decode", id) and ("reset",)

    def session(self) -> object:
        """Start a session whose resets are written down too."""
        session = self.lm.session()
        reset = session.reset
        session.reset = lambda: (self.asked.append(("reset",)), reset())
        return session

    def prefill(self, session: object, token_ids: Sequence[int]) -> object:
        """Forward what is new of a transcript."""
        self.asked.append(("prefill", tuple(token_ids)))
        return self.lm.prefill(session, token_ids)

    def decode(self, session: object, token_id: int) -> object:
        """Forward one id."""
        self.asked.append(("decode", token_id))
        return self.lm.decode(session, token_id)

    def replay(self) -> None:
        """Forward the same again, with nothing around it."""
        session = self.lm.session()
        for name, *given in self.asked:
            if name == "reset":
                session.reset()
            else:
                getattr(self.lm, name)(session, *given)


def solver(lm: object, constrain: bool) -> Callable[[], tuple[int, int]]:
    """Return an action: solve all tasks, and say what was written and forwarded."""
    from tinyllm.agent.local import LocalBackend
    from tinyllm.agent.loop import Agent
    from tinyllm.agent.tools import default
    from tinyllm.evaluate.held_out import MAX_STEPS, tasks_with_tools

    backend = LocalBackend(lm, default(), constrain=constrain)

    def solve() -> tuple[int, int]:
        written, forwarded = backend.tokens, backend.session.forwarded
        for family in FAMILIES:
            for _, task, tools in tasks_with_tools(family, 2, 0):
                Agent(backend, tools, MAX_STEPS, max_seconds=None).run(task.question)
        return backend.tokens - written, backend.session.forwarded - forwarded

    return solve


def table(model: str, rounds: int) -> None:
    """Print rates and ratios of one model (in a child process, on one thread)."""
    import tinyllm

    lm = tinyllm.load(model)
    fast = tinyllm.load(model, exact=False)
    recorder = Recorder(lm)
    solver(recorder, True)()
    arms = solver(lm, True), solver(lm, False), solver(fast, True)
    (made, forwarded), (free_made, _), _ = [solve() for solve in arms]  # and warm up
    masked, free, quick, alone = interleaved(
        *arms, recorder.replay, rounds=rounds, repeat=1
    )
    remark = f"{made} tokens, {forwarded} positions forwarded"
    row("tokens written under the mask", f"{made / median(masked):.0f}/s", remark)
    row("  its forward passes alone", f"{made / median(alone):.0f}/s", "the ceiling")
    row("  share of that ceiling", f"{share(alone, masked):.0%}")
    ratio = share(masked, free) * free_made / made
    row("a token under the mask takes", f"{ratio:.2f}", "times as long as a free one")
    row("exact mode takes", f"{share(masked, quick):.2f}", "times as long as fast")


def main(model: str) -> None:
    """Print the whole table for one model."""
    print(child(__file__, "--table", model, str(ROUNDS)), end="")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        table(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "agent")
