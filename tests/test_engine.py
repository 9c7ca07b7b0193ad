"""The waist: who may look behind it, and that it is all that is needed."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

import tinyllm
from tinyllm.agent.local import LocalBackend
from tinyllm.agent.tools import Registry, answer
from tinyllm.decode.generate import generate
from tinyllm.toy import ToyEngine

PACKAGE = Path(tinyllm.__file__).parent
ABOVE = ("decode/generate.py", "decode/sampling.py", "decode/stop.py", "grammar")
ABOVE += ("agent", "verify", "evaluate", "server")
BEHIND = {"verify/injected.py"}  # puts faults inside
NAMES = {"Model", "KVCache"}
INSIDE = {"cache", "layers", "hidden", "forward"}  # of an engine, a session, a model
CALLS = {"feed", "extend", "score"}  # of a session: an engine is to be asked
ENGINES = {"lm", "engine", "session"}  # whose .model is not a name or an option


def modules(name):
    path = PACKAGE / name
    found = [path] if path.suffix else sorted(path.glob("**/*.py"))
    return [p for p in found if p.relative_to(PACKAGE).as_posix() not in BEHIND]


def behind(source):
    """What a module names or reaches for that lies behind the waist."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("tinyllm.model.cache", "tinyllm.model.transformer", "tinyllm.model.layers")
        ):
            yield f"line {node.lineno}: imports {node.module}"
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield f"line {node.lineno}: {node.id}"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).split(".")[-1]
            model = node.attr == "model" and owner in ENGINES
            around = node.attr in CALLS and owner == "session"
            if model or around or node.attr in INSIDE:
                yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("name", ABOVE)
def test_nothing_above_the_engine_names_or_reaches_what_computes(name):
    found = modules(name)
    assert len(found) >= (1 if name.endswith(".py") else 3)
    for path in found:
        assert list(behind(path.read_text("utf-8"))) == [], path


def test_the_reader_of_that_test_sees_each_way_around_the_waist():
    ways = [
        "from tinyllm.model.cache import KVCache",
        "import x\ndef f(m: Model): ...",
        "logits = self.lm.model.forward(ids)",
        "k = backend.session.cache.k",
        "states = net.hidden(ids)",
        "if session.model is None: ...",
        "logits = self.session.feed(ids)",
    ]
    assert all(list(behind(way)) for way in ways)
    assert not list(behind("name = condition.model\nlm.prefill(session, ids)"))


WAIST = ("tokenizer", "tokenize", "detokenize", "session", "prefill", "decode", "score")


@pytest.fixture
def waist():
    """An engine with the names of `Engine` and no others, around the toy."""
    toy = ToyEngine()
    members = {name: getattr(toy, name) for name in (*WAIST, "embed", "exact")}
    return SimpleNamespace(**members)


def test_agent_verifier_and_generation_need_no_more_than_the_waist_has(waist):
    made = generate(waist, "the cat", max_new_tokens=5)
    assert made.text == ToyEngine().generate("the cat", max_new_tokens=5).text
    assert tinyllm.verify(waist, "the cat") == 0.0
    tools = Registry([answer])
    slot = LocalBackend(waist, tools).thought(waist.tokenize("TOOLS: "))
    assert slot.token_ids
    trace = tinyllm.Agent(waist, tools, max_steps=2).run("Say hello.")
    assert [step.tool for step in trace.steps] == ["answer"]
