"""What the cache saves, what exactness costs, what a session adds: SmolLM2-135M.

    python benchmarks/cache.py [ROUNDS]

An agent's conversation of 10 growing prompts, each fed to a session that reuses what it
holds, and to one that begins afresh. Prefill of 256 tokens in exact and in fast mode,
under the kernel that the processor chooses and under others that it can run. A decode
step through a session against the same step without. One BLAS thread; all that is
compared is measured in turn in one process, and ratios are medians over the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from measure import environment, interleaved, row, share

PREFILL = 256
STEPS = 10
TOOLS = (
    "calc(expression) read_file(path) list_files(folder) search(query, limit) "
    "remember(note) send_mail(address, subject, text) answer(text)"
)
TASK = (
    "Read budget.txt, add up what the ten rooms cost, one by one, remember the "
    "sum, and send it to the office with a sentence that says how it was found."
)
THOUGHT = "I should work out the next part of the sum and write it down."
KERNELS = {"the processor's own": "", "Haswell": "avx2", "SkylakeX": "avx512f"}


def load(exact: bool) -> object:
    """The engine of SmolLM2; ModelNotFoundError says how to get it."""
    import tinyllm

    return tinyllm.load("smollm2", exact=exact)


def prompts(lm: object) -> list[list[int]]:
    """The transcripts that an agent hands over, step by step: each begins the next."""
    from tinyllm.agent import protocol

    ids = protocol.prompt_ids(lm.tokenizer, TOOLS, TASK)
    grown = []
    for i in range(STEPS):
        ids = ids + protocol.encode_pieces(lm.tokenizer, [protocol.THOUGHT])
        grown.append(ids)
        call = protocol.call_text("calc", {"expression": f"{317 * i} + {41 * i}"})
        seen = protocol.observation_literal(str(358 * i))
        pieces = [THOUGHT, protocol.CALL, call, protocol.OBSERVATION, seen]
        ids = ids + protocol.encode_pieces(lm.tokenizer, pieces)
    return grown


def conversation(rounds: int) -> None:
    """Print tokens and time of the conversation (runs in a child process)."""
    for exact in (False, True):
        lm = load(exact)
        grown, session = prompts(lm), lm.session()

        def reuse(session=session, grown=grown) -> None:
            session.reset()
            for ids in grown:
                session.feed(ids)

        def recompute(session=session, grown=grown) -> None:
            for ids in grown:
                session.reset()
                session.feed(ids)

        counts = []
        for way in (reuse, recompute):
            before = session.forwarded
            way()
            counts.append(session.forwarded - before)
        times = interleaved(reuse, recompute, rounds=rounds, repeat=1)
        if not exact:
            lengths = f"prompts of {len(grown[0])} to {len(grown[-1])} tokens"
            row("10 growing prompts, tokens", f"{counts[0]}", lengths)
            row("  without reuse", f"{counts[1]}", "")
            row("  ratio", f"{counts[1] / counts[0]:.1f}", "goal: 5 or more")
        mode = "exact" if exact else "fast"
        row(f"  {mode}, with reuse", f"{statistics.median(times[0]):.2f} s", "")
        row("    without", f"{statistics.median(times[1]):.2f} s", "")
        row("    ratio", f"{share(times[1], times[0]):.1f}", "goal: 4 or more")


def prefill(rounds: int) -> None:
    """Print how many times as long as fast exact takes (runs in a child process)."""
    ids = [17 + (i * 7919) % 40_000 for i in range(PREFILL)]
    fast, exact = (load(mode).session() for mode in (False, True))

    def run(session: object) -> None:
        session.reset()
        session.feed(ids)

    for session in (fast, exact):
        run(session)
    actions = [lambda: run(exact), lambda: run(fast)]
    print(share(*interleaved(*actions, rounds=rounds, repeat=1)))


def step(rounds: int) -> None:
    """Print what a session adds to a decode step (runs in a child process)."""
    import tinyllm

    for name, lm in (("embedded", tinyllm.load(exact=False)), ("SmolLM2", load(False))):
        session = lm.session()
        session.feed([7] * 200)
        model, cache = lm.model, session.cache

        def through(lm=lm, session=session) -> None:
            lm.decode(session, 7)
            session.cache.length = 200

        def without(model=model, cache=cache) -> None:
            model.logits(model.hidden([7], cache))
            cache.length = 200

        n = 100 * rounds if name == "embedded" else rounds
        times = interleaved(through, without, rounds=n, repeat=5)
        more = share(times[0], times[1]) - 1
        row(
            f"a session's share, {name}", f"{more:+.1%}", "of a step; goal: 2 % or less"
        )


def flags() -> set[str]:
    """What the processor can do, where Linux says so."""
    path = Path("/proc/cpuinfo")
    return set(path.read_text().split()) if path.exists() else set()


def child(part: str, rounds: int, kernel: str = "") -> str:
    """What one part of the benchmark prints, under a kernel of OpenBLAS."""
    forced = {"OPENBLAS_CORETYPE": kernel} if kernel else {}
    command = [sys.executable, __file__, part, str(rounds)]
    return subprocess.run(
        command, env=environment() | forced, check=True, text=True,
        stdout=subprocess.PIPE,
    ).stdout  # fmt: skip


def main(rounds: int) -> None:
    """Print the whole table."""
    print(child("conversation", rounds), end="")
    for name, needs in KERNELS.items():
        if needs and needs not in flags():
            row(f"exact prefill, {name}", "-", f"needs {needs}, which is not here")
            continue
        times = float(child("prefill", rounds, name if needs else ""))
        goal = 4 if name == "SkylakeX" else 3
        remark = f"times as long as fast; goal: {goal} or less"
        row(f"exact prefill, {name}", f"{times:.1f}", remark)
    print(child("step", rounds), end="")


PARTS = {"conversation": conversation, "prefill": prefill, "step": step}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in PARTS:
        PARTS[sys.argv[1]](int(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
