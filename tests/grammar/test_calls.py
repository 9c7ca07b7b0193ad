"""The grammar of calls beside that of the same registry's JSON Schema."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tinyllm
from tests.grammar_acceptor import Acceptor
from tests.toy_tokenizer import byte_level
from tinyllm import grammar
from tinyllm.agent.tools import Registry, answer, calc, default, every
from tinyllm.errors import GrammarError
from tinyllm.grammar.calls import rules_of
from tinyllm.grammar.jsonschema.read import parse

VOCABULARY = grammar.Vocabulary(
    byte_level(
        *(b'{"', b'":', b'","', b'"}', b"}}", b'"tool":"', b'"args":{', b"null"),
        *(
            b"true",
            b"12",
            b"\\u",
            b"[[",
            b"],",
            b'"a"',
            b"ab",
            b",{",
            b"}]",
            b"\xc3\xa9",
        ),
    )
)


@dataclass(frozen=True)
class Fake:
    """A tool whose schema may be one that no function of today has."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Fakes:
    """A registry of such tools."""

    tools: tuple[Fake, ...]

    def schema(self) -> dict[str, Any]:
        """Return what a registry returns: one closed object for each tool."""
        parts = [{"tool": {"const": t.name}, "args": t.parameters} for t in self.tools]
        return {"anyOf": list(map(closed, parts))}


def closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key not in optional],
        "additionalProperties": False,
    }


def fake(**parameters: Any) -> Fakes:
    """Return a registry of one tool whose arguments are all required."""
    return Fakes((Fake("do", closed(parameters)),))


def both(registry: Any, vocabulary: grammar.Vocabulary = VOCABULARY) -> Any:
    """Return the grammar of the calls and that of the schema."""
    mine = grammar.TokenGrammar(rules_of(registry), vocabulary)
    return mine, grammar.compile(registry.schema(), vocabulary)


def walk_is_equal(mine: Any, schemas: Any, seed: int, steps: int = 60) -> int:
    """Return the states of a random walk in which all that is asked was equal."""
    dice = random.Random(seed)
    state, other = mine.start(), schemas.start()
    for step in range(steps):
        mask = mine.mask(state)
        np.testing.assert_array_equal(mask, schemas.mask(other))
        assert mine.may_end(state) == schemas.may_end(other)
        assert len(mine.finish(state)) == len(schemas.finish(other))
        legal = mask.nonzero()[0].tolist()
        # half of the time a short token that goes on, so that strings come to an end
        near = mine.finish(state)[:1] if dice.random() < 0.5 else ()
        token_id = near[0] if near else dice.choice(legal)
        if token_id in mine.vocabulary.eos_ids:
            return step + 1
        state, other = mine.advance(state, token_id), schemas.advance(other, token_id)
    return steps


NAMES = st.text(st.sampled_from('ab"\\é\n '), min_size=1, max_size=4)
CONSTANTS = st.one_of(
    st.text(st.sampled_from('ab"\\é\n'), max_size=4), st.integers(), st.booleans()
)
PLAIN = st.sampled_from(["string", "integer", "number", "boolean"])


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return the schemas of dataclasses: some members may be left out."""
    members = st.lists(st.tuples(NAMES, inner, st.booleans()), max_size=3)
    return members.map(
        lambda rows: closed(
            {name: schema for name, schema, _ in rows},
            *(name for name, _, optional in rows if optional),
        )
    )


VALUES = st.recursive(
    PLAIN.map(lambda name: {"type": name})
    | st.lists(CONSTANTS, min_size=1, max_size=3).map(lambda values: {"enum": values})
    | CONSTANTS.map(lambda value: {"const": value}),
    lambda inner: (
        inner.map(lambda schema: {"anyOf": [schema, {"type": "null"}]})
        | inner.map(lambda schema: {"type": "array", "items": schema})
        | objects(inner)
        | st.tuples(inner, NAMES).map(lambda pair: pair[0] | {"description": pair[1]})
    ),
    max_leaves=4,
)
REGISTRIES = st.lists(
    st.builds(Fake, NAMES, objects(VALUES)),
    min_size=1,
    max_size=4,
    unique_by=lambda tool: tool.name,
).map(lambda tools: Fakes(tuple(tools)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REGISTRIES, st.integers(0, 1000))
def test_a_random_registry_has_the_masks_and_completions_of_its_schema(
    registry: Fakes, seed: int
) -> None:
    walk_is_equal(*both(registry), seed)


def book(
    title: str,
    pages: int,
    price: float,
    lent: bool = False,
    shelf: str = "",
    n: int = 0,
) -> str:
    """Take note of a book."""
    return title


def ping() -> str:
    """Answer."""
    return "pong"


# 0 equals False, and is not a schema
ZERO = closed({"a": {"type": "integer"}}) | {"additionalProperties": 0}
MADE = [default(), every(), Registry([book, ping])]


@pytest.mark.parametrize("registry", MADE, ids=["default", "every", "typed"])
def test_three_registries_have_the_masks_and_completions_of_their_schemas(
    registry: Registry,
) -> None:
    vocabulary = grammar.Vocabulary(tinyllm.load().tokenizer)
    pair = both(registry, vocabulary)
    assert sum(walk_is_equal(*pair, seed) for seed in range(50)) > 500


def test_thirty_tools_of_which_one_begins_as_another() -> None:
    tools = tuple(
        Fake("a" * n, closed({"x": {"type": "integer"}})) for n in range(1, 31)
    )
    assert walk_is_equal(*both(Fakes(tools)), seed=1) > 10


def test_one_tool_without_arguments_has_one_text() -> None:
    mine, schemas = both(Registry([ping]))
    text = b'{"tool":"ping","args":{}}'
    for made in (mine, schemas):
        ids = made.finish(made.start())
        assert b"".join(made.vocabulary.token_bytes[i] for i in ids) == text


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"const": "a"}, ['"a"'], [r'"\u0061"', '"b"', "a"]),
        ({"enum": [1, True, None]}, ["1", "true", "null"], ["10", "True", "1.0", "0"]),
        (
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            ["7", "null"],
            ["nul", "7.0"],
        ),
        (
            {"type": "array", "items": {"type": "boolean"}},
            ["[]", "[true,false]"],
            ["[,]"],
        ),
        (
            closed({"a": {"type": "integer"}, "b": {"type": "null"}}, "a"),
            ['{"b":null}', '{"a":1,"b":null}'],
            ["{}", '{"a":1}', '{"b":null,"a":1}', '{"a":1,"b":null,"c":0}'],
        ),
    ],
)
def test_each_kind_of_argument_has_its_texts_and_no_others(
    schema: Any, inside: list[str], outside: list[str]
) -> None:
    reader = Acceptor(rules_of(fake(x=schema)))
    for text in [*inside, *outside]:
        call = f'{{"tool":"do","args":{{"x":{text}}}}}'
        assert reader.accepts(call.encode()) is (text in inside), text


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 3},
        {"type": "string", "enum": ["a"]},
        {"type": ["integer", "null"]},
        {"type": "array", "items": {"type": "integer"}, "maxItems": 1},
        {"type": "object", "properties": {}, "required": []},
        {"anyOf": [True, {"type": "null"}]},
        {"enum": [1.5, [1]]},
        {"const": {"a": 1}},
        True,
    ],
)
def test_what_no_signature_says_is_read_by_the_full_reader(schema: Any) -> None:
    registry = fake(x=schema)
    assert rules_of(registry) == parse(registry.schema())


@pytest.mark.parametrize(
    "schema",
    [{"type": "array", "uniqueItems": True}, {"const": "\ud800"}, {"x": 1}, 7, ZERO],
)
def test_what_cannot_be_enforced_is_refused(schema: Any) -> None:
    with pytest.raises(GrammarError, match="x"):
        rules_of(fake(x=schema))


def test_the_calls_of_plain_tools_need_no_reader_of_schemas() -> None:
    code = (
        "import sys; from tinyllm.grammar import calls, TokenGrammar; "
        "from tinyllm.agent.tools import default; calls.rules_of(default()); "
        "print([name for name in sys.modules if 'jsonschema' in name])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"


def test_a_call_under_the_grammar_parses_and_fits_its_tool() -> None:
    registry = Registry([calc, answer, book])
    made = grammar.TokenGrammar(rules_of(registry), VOCABULARY)
    for seed in range(5):
        dice, state = random.Random(seed), made.start()
        ids: list[int] = []
        while not made.is_done(state) and len(ids) < 30:
            ids.append(dice.choice(made.mask(state).nonzero()[0].tolist()))
            state = made.advance(state, ids[-1])
        ids += made.finish(state)
        call = json.loads(b"".join(VOCABULARY.token_bytes[i] for i in ids))
        registry.check(call["tool"], call["args"])
