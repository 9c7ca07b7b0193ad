"""What a mask costs on SmolLM2's vocabulary, beside the engines that people use.

    python benchmarks/grammar.py [ROUNDS]

Three schemas: a union of two tools, a nested object with enums and a range, a tree that
recurses. outlines-core, xgrammar and llguidance take part where they are installed, in
one process on one thread, asked for compact JSON; outlines-core does not keep the range
and unrolls the tree to three levels, so the trees here have no more.

All walk the same tokens: seeded texts, encoded whole and in pieces. In each round every
engine compiles anew and walks twice. A place is new where tinyllm's automaton is in a
state not met before; the second walk meets known states only. A place counts with its
median over the rounds, so that p99 and worst are over the places, what an engine does
and not what else the machine did.

Last, the share of masking in a whole call of LocalBackend on SmolLM2.
"""

from __future__ import annotations

import importlib.util
import json
import random
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from time import perf_counter
from typing import Any

import numpy as np
from grammar_engines import ENGINES, Filling, Json
from measure import child, row, share, timed

SOME_TEXT = (
    "total of the ten rooms is naïve Zoë 東京 𝄞 🙂 (317+41)*26 budget.txt 3.14 "
    '"quoted" back\\slash https://example.org/a?b=1 Straße {x} [0]'
)
WALKS = 24  # for each schema
TASK = "What is 4871 * 209?"
THOUGHT = "I should work out the product."


def closed(**properties: Json) -> Json:
    """An object with these properties, all of them and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def two_tools() -> Json:
    """The calls of calc and answer."""
    from tinyllm.agent.tools import Registry, answer, calc

    return Registry([calc, answer]).schema()


TEXT = {"type": "string"}
ORDER = closed(
    id={"type": "integer"},
    status={"enum": ["open", "paid", "shipped", "returned"]},
    customer=closed(name=TEXT, tier={"enum": ["basic", "silver", "gold"]}),
    items={
        "type": "array",
        "items": closed(
            sku=TEXT, quantity={"type": "integer", "minimum": 1, "maximum": 250}
        ),
    },
)
NODES = {"type": "array", "items": {"$ref": "#/$defs/node"}}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": closed(name=TEXT, children=NODES)}}


def words(rng: random.Random) -> str:
    """Up to eight words."""
    return " ".join(rng.choices(SOME_TEXT.split(), k=rng.randint(0, 8)))


def call(rng: random.Random) -> Json:
    """A call of one of the two tools."""
    tool, key = rng.choice([("calc", "expression"), ("answer", "text")])
    return {"tool": tool, "args": {key: words(rng)}}


def order(rng: random.Random) -> Json:
    """An order of up to three items."""
    items = [
        {"sku": words(rng), "quantity": rng.randint(1, 250)}
        for _ in range(rng.randint(0, 3))
    ]
    return {
        "id": rng.randint(-9999, 99_999),
        "status": rng.choice(["open", "paid", "shipped", "returned"]),
        "customer": {"name": words(rng), "tier": rng.choice(["basic", "silver"])},
        "items": items,
    }


def tree(rng: random.Random, levels: int = 3) -> Json:
    """A tree of up to three levels."""
    count = rng.randint(0, 3) if levels > 1 else 0
    children = [tree(rng, levels - 1) for _ in range(count)]
    return {"name": words(rng), "children": children}


SCHEMAS = {
    "two tools": (two_tools, call),
    "nested order": (lambda: ORDER, order),
    "tree": (lambda: TREE, tree),
}


def token_walks(tokenizer: Any, make: Callable[[random.Random], Json]) -> list:
    """Seeded texts as ids: every other one is encoded in pieces of 1 to 6 characters.

    The pieces lead into the middle of names and numbers, as a model's choices may.
    """
    rng, walks = random.Random(5), []
    for i in range(WALKS):
        text = json.dumps(make(rng), ensure_ascii=False, separators=(",", ":"))
        ids: list[int] = []
        while text:
            end = rng.randint(1, 6) if i % 2 else len(text)
            ids += tokenizer.encode(text[:end])
            text = text[end:]
        walks.append(ids)
    return walks


@dataclass
class Times:
    """Seconds, one entry a round; of masks and steps, one a place in it."""

    compile: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    cold: list[list[float]] = field(default_factory=list)
    warm: list[list[float]] = field(default_factory=list)
    step: list[list[float]] = field(default_factory=list)


def walked(engine: Any, compiled: Any, walks: list) -> tuple[list, list, float]:
    """The seconds of each mask and of each step, and until the first mask is there."""
    masks, steps, first = [], [], 0.0
    for ids in walks:
        begin = perf_counter()
        mask, advance = engine.start(compiled)
        for token_id in ids:
            before = perf_counter()
            mask()
            after = perf_counter()
            advance(token_id)
            steps.append(perf_counter() - after)
            masks.append(after - before)
            first = first or after - begin
    return masks, steps, first


def check(name: str, engine: Any, compiled: Any, walks: list) -> None:
    """RuntimeError unless every token of every walk is legal to the engine.

    Where the text is forced, llguidance's mask holds the usual token alone although it
    accepts others: of walks in pieces only the steps are checked.
    """
    for i, ids in enumerate(walks):
        mask, advance = engine.start(compiled)
        for j, token_id in enumerate(ids):
            legal = mask()
            if isinstance(engine, Filling):
                legal = np.unpackbits(engine.bits.view(np.uint8), bitorder="little")
            if not ((legal[token_id] or i % 2) and advance(token_id)):
                raise RuntimeError(f"{name} refuses token {j} of the walk {ids}")


def new_places(grammar: Any, walks: list) -> Iterator[bool]:
    """Of each place: whether its state is met for the first time.

    Without tinyllm's grammar every prefix is a state of its own.
    """
    seen: set[Any] = set()
    for ids in walks:
        state = grammar.start() if grammar else ()
        for token_id in ids:
            yield state not in seen
            seen.add(state)
            state = grammar.advance(state, token_id) if grammar else (*state, token_id)


def measure(engines: dict, schema: Json, walks: list, rounds: int) -> tuple[int, dict]:
    """How many places are new, and the times of each engine that takes the schema."""
    taken = {}
    for name, engine in engines.items():
        try:
            taken[name] = engine.compile(schema)
        except Exception as error:  # each engine has its own
            row(f"  {name}", "-", f"refuses it: {error!s:.60}")
            continue
        check(name, engine, taken[name], walks)
    new = np.flatnonzero(list(new_places(taken.get("tinyllm"), walks)))
    times = {name: Times() for name in taken}
    for _ in range(rounds):
        for name, kept in times.items():
            engine, begin = engines[name], perf_counter()
            compiled = engine.compile(schema)
            kept.compile.append(perf_counter() - begin)
            masks, steps, first = walked(engine, compiled, walks)
            kept.first.append(first)
            kept.cold.append([masks[i] for i in new])
            kept.step.append([steps[i] for i in new])
            kept.warm.append(walked(engine, compiled, walks)[0])
    return len(new), times


def written(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.{2 if seconds < 1e-5 else 0}f} µs"
    return f"{seconds * 1e3:.{1 if seconds < 0.1 else 0}f} ms"


def spread(rounds: list[list[float]]) -> tuple[float, str]:
    """The median over the places, and p99 and worst in words."""
    places = np.median(rounds, axis=0)
    p99, worst = (float(np.percentile(places, q)) for q in (99, 100))
    return float(np.median(places)), f"p99 {written(p99)}, worst {written(worst)}"


def block(what: str, kind: str, times: dict[str, Times], goal: str = "") -> None:
    """Print one figure of every engine, and what tinyllm's is beside the fastest."""
    middles = {}
    for name, kept in times.items():
        figures = getattr(kept, kind)
        remark = ""
        if isinstance(figures[0], list):
            value, remark = spread(figures)
            figures = [statistics.median(places) for places in figures]
        else:
            value = statistics.median(figures)
        middles[name] = figures
        if name == "tinyllm" and goal:
            remark += f"{'; ' if remark else ''}goal: {goal}"
        row(f"  {what}, {name}", written(value), remark)
    others = [name for name in middles if name != "tinyllm"]
    if "tinyllm" in middles and others:
        fastest = min(others, key=lambda name: statistics.median(middles[name]))
        times_as_long = share(middles["tinyllm"], middles[fastest])
        remark = f"times what {fastest} takes, the fastest other"
        remark += "; goal: 1 or less" if kind == "warm" else ""
        row("    tinyllm", f"{times_as_long:.2f}", remark)


def installed(tokenizer: Any) -> dict[str, Any]:
    """The engines that are here; prints what each needs once for the vocabulary."""
    engines, schema = {}, two_tools()

    def begin(name: str) -> None:
        engines[name] = ENGINES[name][1](tokenizer)
        engines[name].compile(schema)

    for name, (module, _) in ENGINES.items():
        if importlib.util.find_spec(module) is None:
            row(name, "-", "not installed: takes no part")
            continue
        importlib.import_module(module)
        took = written(timed(partial(begin, name)))
        found = "" if name == "tinyllm" else f" {metadata.version(name)}"
        row(name + found, took, "the first compile, with the vocabulary")
    return engines


def masks(rounds: int) -> None:
    """Print every figure of every schema (runs in a child process)."""
    import tinyllm

    tokenizer = tinyllm.load("smollm2").tokenizer
    engines = installed(tokenizer)
    for title, (schema, make) in SCHEMAS.items():
        walks = token_walks(tokenizer, make)
        row(title, f"{sum(map(len, walks))}", f"tokens in {WALKS} walks")
        new, times = measure(engines, schema(), walks, rounds)
        remark = "" if "tinyllm" in times else "prefixes, since tinyllm refuses it"
        row("  new states among them", f"{new}", remark)
        goal = "20 ms or less" if title == "two tools" else ""
        block("compile", "compile", times, goal)
        block("first mask", "first", times)
        block("new state", "cold", times, "median 100 µs, worst 5 ms")
        block("known state", "warm", times)
        block("step from a new state", "step", times)


class Watched:
    """Another object; the seconds that some of its methods take are added up."""

    def __init__(self, thing: Any, *methods: str) -> None:
        self.thing, self.methods, self.seconds = thing, methods, 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.thing, name)
        return partial(self.watch, found) if name in self.methods else found

    def watch(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """What the method returns."""
        begin = perf_counter()
        result = method(*arguments)
        self.seconds += perf_counter() - begin
        return result


def whole_call(rounds: int) -> None:
    """Print the share of masking in a call on SmolLM2 (runs in a child process)."""
    import tinyllm
    from tinyllm.agent import protocol
    from tinyllm.agent.local import LocalBackend

    lm, tools = tinyllm.load("smollm2", exact=False), tinyllm.tools.default()
    pieces = [protocol.THOUGHT, THOUGHT, protocol.CALL]
    ids = protocol.prompt_ids(lm.tokenizer, tools.describe(), TASK)
    ids = ids + protocol.encode_pieces(lm.tokenizer, pieces)
    shares: dict[str, list[float]] = {"a first call": [], "a second call": []}
    forwards = []
    for _ in range(rounds):
        backend = LocalBackend(lm, tools, keep_choices=True)
        backend.session = model = Watched(backend.session, "feed", "extend")
        methods = ("start", "mask", "advance", "finish", "can_finish", "is_done")
        backend._grammar = rules = Watched(backend._grammar, *methods)
        for kept in shares.values():
            backend.reset()
            model.seconds = rules.seconds = 0.0
            slot = backend.call(ids)
            applied = sum(
                timed(lambda c=c: np.where(c.mask, c.logits, np.float32(-np.inf)))
                for c in slot.choices
            )
            kept.append((rules.seconds + applied) / model.seconds)
            forwards.append(model.seconds)
    row("a call on SmolLM2", f"{slot.tokens}", f"tokens after a prompt of {len(ids)}")
    row("  forward passes", f"{statistics.median(forwards):.2f} s", "fast mode")
    for which, kept in shares.items():
        value = f"{statistics.median(kept):.2%}"
        row(f"  masking, {which}", value, "of the forward passes; goal: under 1 %")


def main(rounds: int) -> None:
    """Print the whole table."""
    print(child(__file__, "masks", str(rounds)), end="")
    print(child(__file__, "call", str(max(1, rounds // 3))), end="")


PARTS = {"masks": masks, "call": whole_call}

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in PARTS:
        PARTS[sys.argv[1]](int(sys.argv[2]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
