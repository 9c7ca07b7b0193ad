"""How fast a real model is: SmolLM2-135M in float32, beside others and a ceiling.

    python benchmarks/smollm2.py [ROUNDS]

Prefill of 256 tokens (fast mode) and one decode step at position 256. The ceiling is
the model's matrix products and nothing else. transformers (float32) and
llama-cpp-python (the file's own 4-bit blocks) take part where they are installed. Each
engine is a process of its own on one thread; they are asked in turn, round by round,
and ratios are medians over the rounds.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from measure import environment, row, share, timed

T = 256
Actions = dict[str, Callable[[], object]]
Times = dict[tuple[str, str], list[float]]


def path() -> Path:
    """Where the model's file is; ModelNotFoundError says how to get it."""
    from tinyllm.models.find import find

    return find("smollm2")


def token_ids() -> list[int]:
    """T ids of ordinary tokens, the same for every engine."""
    return [17 + (i * 7919) % 40_000 for i in range(T)]


def numpy_engine() -> Actions:
    """tinyllm, and what only its matrix products cost."""
    import numpy as np

    import tinyllm
    from tinyllm.model.layers import linear

    print("load", timed(lambda: tinyllm.load(path(), exact=False)), flush=True)
    lm, exact = tinyllm.load(path(), exact=False), tinyllm.load(path())
    session, slow, ids = lm.session(), exact.session(), token_ids()
    layers, rng = lm.model.layers, np.random.default_rng(0)
    matrices = [w for x in layers for w in (x.qkv, x.out, x.gate_up, x.down)]

    def inputs(*shape: int) -> list:
        return [rng.normal(size=(*shape, w.shape[1])).astype("f4") for w in matrices]

    many, single, last = inputs(T), inputs(), rng.normal(size=lm.config.dim)
    last = last.astype("f4")

    def prefill(which: object) -> None:
        which.reset()
        which.feed(ids)

    def decode() -> None:
        session.extend([99])
        session.rewind(T)

    def products(rows: list) -> None:
        for x, w in zip(rows, matrices, strict=True):
            linear(x, w)
        linear(last, lm.model.head)

    return {
        "prefill": lambda: prefill(session),
        "decode": decode,
        "prefill ceiling": lambda: products(many),
        "decode ceiling": lambda: products(single),
        "prefill exact": lambda: prefill(slow),
    }


def transformers_engine() -> Actions:
    """transformers on torch, float32, from the same file."""
    import torch
    import transformers

    torch.set_num_threads(1)
    file = path()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    ids = torch.tensor([token_ids()])
    cache = transformers.DynamicCache(config=model.config)

    def forward(tokens: object) -> None:
        with torch.inference_mode():
            model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def prefill() -> None:
        nonlocal cache
        cache = transformers.DynamicCache(config=model.config)
        forward(ids)

    def decode() -> None:
        forward(torch.tensor([[99]]))
        cache.crop(-1)

    return {"prefill": prefill, "decode": decode}


def llama_cpp_engine() -> Actions:
    """llama.cpp on the file's own 4-bit blocks."""
    import llama_cpp

    llm = llama_cpp.Llama(
        str(path()), n_ctx=T + 8, n_batch=T, n_ubatch=T, n_threads=1,
        n_threads_batch=1, verbose=False,
    )  # fmt: skip
    ids = token_ids()

    def prefill() -> None:
        llm.n_tokens = 0
        llm.eval(ids)

    def decode() -> None:
        llm.n_tokens = T
        llm.eval([99])

    return {"prefill": prefill, "decode": decode}


ENGINES = {
    "tinyllm": ("numpy", numpy_engine),
    "transformers": ("torch", transformers_engine),
    "llama.cpp": ("llama_cpp", llama_cpp_engine),
}


def work(name: str) -> None:
    """In a child: say what can be asked, then time each action that is asked for."""
    actions = ENGINES[name][1]()
    for action in actions.values():
        action()  # the first time also allocates
    print("ready", *(a.replace(" ", "_") for a in actions), flush=True)
    for line in sys.stdin:
        print(timed(actions[line.strip().replace("_", " ")]), flush=True)


class Worker:
    """An engine in a process of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--engine", name], env=environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.load = 0.0
        while (words := self.line().split())[0] != "ready":
            if words[0] == "load":
                self.load = float(words[1])
        self.actions = words[1:]

    def line(self) -> str:
        """The next line it prints; RuntimeError where it has died."""
        line = self.process.stdout.readline()
        if not line.strip():
            raise RuntimeError(f"{self.name} stopped: run it alone with --engine")
        return line

    def ask(self, action: str) -> float:
        """The seconds that one action takes."""
        self.process.stdin.write(action + "\n")
        self.process.stdin.flush()
        return float(self.line())


def rounds(workers: list[Worker], n: int) -> Times:
    """The times of every action of every engine, all asked in turn n times."""
    times: Times = {}
    for i in range(n):
        for worker in workers:
            for action in worker.actions:
                took = worker.ask(action)
                times.setdefault((worker.name, action), []).append(took)
        print(f"round {i + 1} of {n}", file=sys.stderr, flush=True)
    return times


def table(times: Times, load: float) -> None:
    """Print what was measured, each figure with what it is to be held against."""
    ours = {action: t for (name, action), t in times.items() if name == "tinyllm"}
    row("load SmolLM2, dequantise", f"{load:.2f} s", "goal: 3 s or less")
    for what, goal in (("prefill", "70 %"), ("decode", "80 %")):
        ceiling = ours[f"{what}_ceiling"]
        row(f"{what}, tinyllm float32", speed(ours[what], what), "")
        row("  its matrix products alone", speed(ceiling, what), "")
        row("  share", f"{share(ceiling, ours[what]):.0%}", f"goal: {goal} or more")
        for name in ("transformers", "llama.cpp"):
            if theirs := times.get((name, what)):
                row(f"  {name}", speed(theirs, what), BYTES[name, what])
                row("    tinyllm is faster by", f"{share(theirs, ours[what]):.2f}")
    row("exact prefill takes", f"{share(ours['prefill_exact'], ours['prefill']):.1f}",
        "times as long as fast")  # fmt: skip


BYTES = {
    ("transformers", "prefill"): "float32; goal: faster",
    ("transformers", "decode"): "float32, reads the same 538 MB a token; goal: faster",
    ("llama.cpp", "prefill"): "Q4_1; goal: faster",
    ("llama.cpp", "decode"): "Q4_1 reads 96 MB a token, float32 538: it stays ahead",
}


def speed(times: list[float], what: str) -> str:
    """The median as tokens a second."""
    tokens = T if what == "prefill" else 1
    return f"{tokens / statistics.median(times):.1f}/s"


RESIDENT = """
import re, sys, tinyllm
lm = tinyllm.load(sys.argv[1], exact=False)
session = lm.session()
session.feed([99] * 256)
seen = dict(re.findall(r"Vm(RSS|HWM):\\s+(\\d+) kB", open("/proc/self/status").read()))
weights = lm.model.embedding.nbytes + sum(
    w.array.nbytes for x in lm.model.layers for w in (x.qkv, x.out, x.gate_up, x.down)
)
print(weights, int(seen["RSS"]) * 1024, int(seen["HWM"]) * 1024)
"""


def memory() -> None:
    """Print what the process holds once it has loaded and generated."""
    from measure import child

    weights, resident, peak = map(int, child("-c", RESIDENT, str(path())).split())
    row("float32 weights", f"{weights / 1e6:.0f} MB")
    row("resident, with 256 positions held", f"{resident / 1e6:.0f} MB", "")
    row("  times the weights", f"{resident / weights:.2f}", "goal: 1.3 or less")
    row("  at most while loading", f"{peak / weights:.2f}", "")


def main(n: int) -> None:
    """Measure what is installed and print the whole table."""
    installed = [e for e, (m, _) in ENGINES.items() if importlib.util.find_spec(m)]
    for name in set(ENGINES) - set(installed):
        print(f"{name} is not installed and takes no part", file=sys.stderr)
    workers = [Worker(name) for name in installed]
    table(rounds(workers, n), workers[0].load)
    for worker in workers:
        worker.process.stdin.close()
    if Path("/proc/self/status").exists():
        memory()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        work(sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
