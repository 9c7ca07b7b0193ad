"""`pico.py` does what the package does: the same ids, logits, masks and traces."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyllm
from tinyllm import grammar, pico
from tinyllm.agent.local import LocalBackend
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import clean_task
from tinyllm.decode.sampling import Sampler
from tinyllm.evaluate.held_out import registry, tasks
from tinyllm.train.tasks import FAMILIES

SOURCE = Path(pico.__file__).read_text("utf-8")
NEAR = 1e-3  # a difference at a smaller margin between the two best logits is rounding
MODEL = pico.load()


def ring(times: int, volume: float, loud: bool, name: str = "") -> str:
    """Ring a bell."""
    return f"{times} {volume} {loud} {name}"


def wait(minutes: int = 1, quietly: bool = False) -> str:
    """Wait."""
    return f"{minutes} {quietly}"


@cache
def lm():
    return tinyllm.load()


def registries():
    return {
        "default": tinyllm.tools.default(),
        "every": tinyllm.tools.every(),
        "four types": tinyllm.tools.Registry([ring, wait, tinyllm.tools.answer]),
    }


def calls(tools):
    found = {tool.name: tool.function for tool in tools}
    return pico.either(*map(pico.call, found, found.values()))


def test_it_imports_nothing_but_the_standard_library_numpy_and_regex():
    names = set()
    for node in ast.walk(ast.parse(SOURCE)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.split(".")[0])
    assert names - {"numpy", "regex"} <= sys.stdlib_module_names


def test_the_command_prints_the_trace_and_the_product():
    done = subprocess.run(
        [sys.executable, "-m", "tinyllm.pico", "What is 4871 * 209?"],
        capture_output=True, check=True,
    )  # fmt: skip
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "THOUGHT: I should calculate this."
    assert 'CALL: {"tool":"calc","args":{"expression":"4871 * 209"}}' in lines
    assert 'OBSERVATION: "1018039"' in lines
    assert lines[-1] == "ANSWER: 1018039"


PIECES = st.lists(
    st.sampled_from(
        ["  1", " 12 ", "it's", "'s1", "\n\n", " \n7", "é", "🦙", "\t", "a"]
    )
)


@given(st.text() | PIECES.map("".join))
def test_a_text_has_the_same_ids(text):
    ids = pico.encode(text, MODEL.merges)
    assert ids == lm().tokenizer.encode(text)
    assert pico.decode(ids, MODEL.tokens) == text


def test_the_vocabulary_is_the_same():
    tokenizer = lm().tokenizer
    bytes_of = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    assert list(MODEL.tokens) == bytes_of


@given(st.lists(st.integers(0, 511), min_size=2, max_size=40), st.data())
def test_logits_are_the_same_wherever_the_cache_is_split(ids, data):
    expected = lm().model.forward(ids)
    split = data.draw(st.integers(1, len(ids) - 1))
    held = pico.Cache(MODEL)
    parts = [pico.forward(part, MODEL, held) for part in (ids[:split], ids[split:])]
    found = np.concatenate(parts)
    assert found.dtype == np.float32
    assert np.abs(found - expected).max() < 1e-4
    pico.rewind(held, split)
    again = pico.feed(ids, MODEL, held)
    assert np.abs(again - expected[-1]).max() < 1e-4
    assert held.ids == ids


def test_the_same_transcript_twice_forwards_one_id(monkeypatch):
    forwarded = []
    real = pico.forward
    monkeypatch.setattr(
        pico,
        "forward",
        lambda ids, *rest: forwarded.append(len(ids)) or real(ids, *rest),
    )
    held = pico.Cache(MODEL)
    for ids in ([1, 5, 6, 7], [1, 5, 6, 7], [1, 5, 9], [1]):
        pico.feed(ids, MODEL, held)
    assert forwarded == [4, 1, 1, 1]


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 2), st.floats(0.1, 1))
def test_a_pick_is_that_of_the_sampler(seed, temperature, limit):
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, 50).astype(np.float32)
    sampler = Sampler(temperature, top_p=limit, seed=seed)
    number = np.random.default_rng(seed).random()
    assert pico.pick(logits, number, temperature, limit) == sampler.pick(logits)
    assert pico.pick(logits) == logits.argmax()


@pytest.mark.parametrize("name", registries())
def test_the_mask_is_the_same_in_every_state_of_random_walks(name):
    tools = registries()[name]
    ours = grammar.compile(tools.schema(), lm().tokenizer)
    random, looked_at = np.random.default_rng(7), 0
    while looked_at < 1700:
        state, e = ours.start(), calls(tools)
        while not ours.is_done(state):
            legal = ours.mask(state)
            assert np.array_equal(pico.mask(e, MODEL.tokens), legal)
            if looked_at % 40 == 0:
                completion = pico.shortest(e, MODEL.tokens)
                assert len(completion) == len(ours.finish(state))
            looked_at += 1
            # Rarely into a string: half of the walks hurry to the end.
            ids = np.flatnonzero(legal)
            hurry = random.random() < 0.3 and ours.finish(state)
            token_id = ours.finish(state)[0] if hurry else int(random.choice(ids))
            if token_id in ours.vocabulary.eos_ids:
                break
            state = ours.advance(state, token_id)
            for byte in MODEL.tokens[token_id]:
                e = pico.derive(e, byte)


def test_a_task_of_several_lines_cannot_begin_a_line_of_the_protocol():
    tools = {"answer": tinyllm.tools.answer}
    _, ids = pico.run("Hello.\nCALL: {}\r\nTHOUGHT: x", tools, MODEL, lambda text: None)
    asked = pico.decode(ids, MODEL.tokens).splitlines()[1]
    assert asked == "TASK: Hello. CALL: {} THOUGHT: x"


@pytest.mark.parametrize("task", [" hi ", "a\tb", "x\r\n\ny", "z\u2028\x7f!"])
def test_a_task_is_cleaned_as_the_package_cleans_it(task):
    tools = {"answer": tinyllm.tools.answer}
    _, ids = pico.run(task, tools, MODEL, lambda text: None)
    asked = pico.decode(ids, MODEL.tokens).split("\n")[1]
    assert asked == f"TASK: {clean_task(task)}"


def test_a_registry_with_an_argument_of_another_type_is_refused():
    def unfit(items: list) -> str:
        """Do nothing."""
        return ""

    with pytest.raises(KeyError):
        pico.call("unfit", unfit)


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "missing.txt", "inside", "link.txt"]
)
def test_a_file_outside_the_folder_is_like_one_that_is_missing(tmp_path, path):
    (tmp_path / "root" / "inside").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "root" / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "root" / "note.txt").write_text("hello\n")
    read = pico.reader(tmp_path / "root")
    assert read("note.txt") == "hello"
    with pytest.raises(ValueError, match=r"there is no file '.*'"):
        read(path)


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "9**9**9", "1/0", "f()", "a", "'a'", "(", ""]
)
def test_the_calculator_raises_instead_of_running_code(expression):
    with pytest.raises(Exception):  # noqa: B017 - the loop observes whatever it is
        pico.calc(expression)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("4871 * 209", "1018039"),
        ("7/2", "3.5"),
        ("-(2 + 3) * 4", "-20"),
        ("2/3", "0.666667"),
    ],
)
def test_the_calculator_is_exact(expression, value):
    assert pico.calc(expression) == value == tinyllm.tools.calc(expression)


def margin(logits: np.ndarray) -> float:
    """Return how far the best logit is above the second."""
    second, best = np.sort(logits)[-2:]
    return float(best - second)


def functions_of(registry):
    """The tools by name, the scripted ones with the signature that pico reads."""
    found = {}
    for tool in registry:
        function = tool.function
        if "_" in inspect.signature(function).parameters:  # lambda **_: reply
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            args = [
                inspect.Parameter(name, kind, annotation=str)
                for name in tool.parameters["properties"]
            ]
            function.__signature__ = inspect.Signature(args)
        found[tool.name] = function
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_trace_is_the_same_on_25_held_out_tasks_a_family(family, tmp_path):
    backend = LocalBackend(lm(), tinyllm.tools.default())
    for number, task in enumerate(tasks(family, 25, seed=12)):
        (folder := tmp_path / str(number)).mkdir()
        tools = registry(task, folder)
        trace = Agent(backend, tools).run(task.question)
        question = trace.task
        answer, ids = pico.run(question, functions_of(tools), MODEL, lambda text: None)
        if tuple(ids) == trace.token_ids:
            assert answer == trace.answer
            continue
        pairs = zip(ids, trace.token_ids, strict=False)
        n = next(i for i, (a, b) in enumerate(pairs) if a != b)
        near = margin(lm().model.forward(ids[:n])[-1])
        assert near < NEAR, f"{question!r} differs at id {n}, margin {near}"
        warnings.warn(f"{question!r} differs at a margin of {near:.1e}", stacklevel=1)
