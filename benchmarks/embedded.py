"""How fast the embedded model is, each figure beside a ceiling from the same run.

    python benchmarks/embedded.py

Decode against a loop that does nothing but the same weight products; the mask against
a decode step; start-up and memory against numpy's own. The measuring runs in child
processes on one BLAS thread, with the kernel that the processor chooses by itself.
"""

from __future__ import annotations

import os
import statistics
import sys

from measure import child, interleaved, row, share, timed

POSITION = 200
TASK = "What is 4871 * 209?"


def seconds(*arguments: str, runs: int = 9) -> float:
    """The median time that `python ARGUMENTS` takes from start to end."""
    return statistics.median(timed(lambda: child(*arguments)) for _ in range(runs))


def load_row() -> None:
    """Print how long loading takes once everything is imported (in a child process)."""
    import tinyllm

    (loads,) = interleaved(tinyllm.load, rounds=9, repeat=1)
    took = f"{statistics.median(loads) * 1e3:.0f} ms"
    row("load the embedded model", took, "goal: 100 ms or less")


def decode_table() -> None:
    """Print the decode step, its ceiling and the mask (runs in a child process)."""
    import numpy as np

    import tinyllm
    from tinyllm.model.layers import linear

    lm = tinyllm.load(exact=False)
    session = lm.session()
    ids = np.random.default_rng(0).integers(3, lm.tokenizer.vocab_size, POSITION)
    session.feed([int(i) for i in ids])

    def step() -> None:
        session.extend([7])
        session.rewind(POSITION)

    model, rng = lm.model, np.random.default_rng(1)
    matrices = [
        w for layer in model.layers for w in (layer.qkv, layer.out, layer.gate_up)
    ]
    matrices += [layer.down for layer in model.layers] + [model.head]
    rows = [rng.normal(size=w.shape[1]).astype(np.float32) for w in matrices]

    def products() -> None:
        for x, weight in zip(rows, matrices, strict=True):
            linear(x, weight)

    tools = tinyllm.tools.default()
    grammar = tinyllm.grammar.compile(tools.schema(), lm.tokenizer)
    state, logits = grammar.start(), session.extend([7]).copy()
    session.rewind(POSITION)
    legal = int(np.flatnonzero(grammar.mask(state))[0])
    scratch = logits.copy()

    def mask() -> None:
        scratch[:] = logits
        grammar.apply(scratch, state)
        grammar.advance(state, legal)

    steps, products_alone, masks = interleaved(step, products, mask)
    full, ceiling, masked = map(statistics.median, (steps, products_alone, masks))
    row("decode step at position 200", f"{full * 1e6:.0f} µs", f"{1 / full:.0f}/s")
    row("the same weight products alone", f"{ceiling * 1e6:.0f} µs", "")
    row(
        "  share of that ceiling",
        f"{share(products_alone, steps):.0%}",
        "goal: 25 % or more",
    )
    row("mask: look up, apply, advance", f"{masked * 1e6:.1f} µs", "")
    row("  share of a decode step", f"{share(masks, steps):.1%}", "goal: 5 % or less")


RESIDENT = """
import re
def resident():
    text = open("/proc/self/status").read()
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", text)[1])
import numpy
before = resident()
import tinyllm
assert tinyllm.Agent(tinyllm.load(), tinyllm.tools.default()).run(TASK).answer
print((resident() - before) / 1024)
"""
USED = "import numpy, tinyllm; tinyllm.load, tinyllm.Agent, tinyllm.grammar.compile"


def main() -> None:
    """Print the whole table."""
    print(child(__file__, "--decode"), end="")
    numpy_alone = seconds("-c", "import numpy")
    lazy = seconds("-c", "import numpy, tinyllm") - numpy_alone
    used = seconds("-c", USED) - numpy_alone
    row("import numpy", f"{numpy_alone * 1e3:.0f} ms", "from process start to end")
    row("import tinyllm, beyond that", f"{lazy * 1e3:.0f} ms", "goal: 50 ms or less")
    row("  and all public names used", f"{used * 1e3:.0f} ms", "")
    answer = seconds("-m", "tinyllm", "agent", TASK)
    row("agent's answer from process start", f"{answer:.2f} s", "goal: 1.5 s or less")
    row("  as a multiple of importing numpy", f"{answer / numpy_alone:.1f}", "")
    if os.path.exists("/proc/self/status"):
        resident = float(child("-c", RESIDENT.replace("TASK", repr(TASK))))
        row("resident memory beyond numpy", f"{resident:.0f} MiB", "goal: 40 or less")


if __name__ == "__main__":
    if sys.argv[1:] == ["--decode"]:
        load_row()
        decode_table()
    else:
        main()
