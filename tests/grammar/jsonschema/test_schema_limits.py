"""Schemas that once were read too widely, or for ever: found by people who tried."""

from __future__ import annotations

from typing import Any

import pytest

from tests.toy_tokenizer import byte_level
from tinyllm import grammar
from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.read import MAX_PARTS, parse
from tinyllm.grammar.pushdown import Pushdown

VOCABULARY = grammar.Vocabulary(byte_level(b"[[", b"]]", b"[]"))
HOST = {"type": "string", "format": "hostname"}
FIVE = {"const": "a.b.c.d.e"}  # a host name that the asserted subset leaves out


def accepts(schema: Any, text: str) -> bool:
    return Pushdown(parse(schema), range(256), range(256)).accepts(text.encode())


def keyed(schema: Any) -> dict[str, Any]:
    return {"type": "object", "required": ["k"], "properties": {"k": schema}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "not": {"format": "email"}},
        {"type": "string", "not": {"format": "date-time"}},
        {"if": {"format": "hostname"}, "then": {"maxLength": 3}, "else": True},
        {"oneOf": [FIVE, HOST]},
        {"oneOf": [keyed(FIVE), keyed(HOST)]},
        {"allOf": [FIVE, {"oneOf": [HOST, {"type": "string"}]}]},
    ],
)
def test_what_lies_outside_a_subset_of_a_format_is_not_relied_on(schema: Any) -> None:
    with pytest.raises(GrammarError, match="format"):
        parse(schema)


def test_an_exact_format_has_a_complement() -> None:
    schema = {"type": "string", "not": {"format": "ipv4"}}
    assert accepts(schema, '"1.2.3"')
    assert not accepts(schema, '"1.2.3.4"')


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("0000-01-01", False),
        ("0000-02-29", False),
        ("0001-01-01", True),
        ("0400-02-29", True),
        ("1900-02-29", False),
        ("2000-02-29", True),
        ("2023-02-29", False),
        ("2024-02-29", True),
    ],
)
def test_dates_are_those_of_the_calendar(text: str, right: bool) -> None:
    assert accepts({"type": "string", "format": "date"}, f'"{text}"') is right


def test_an_older_draft_is_refused_where_narrower_would_be_wider() -> None:
    older = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert accepts(older | {"type": "integer"}, "3")
    negated = {"$ref": "#/definitions/x", "minimum": 5}  # siblings of $ref are ignored
    schema = older | {"definitions": {"x": {"type": "integer"}}, "not": negated}
    with pytest.raises(GrammarError, match=r"#: \$schema names a draft older"):
        parse(schema)


def nested(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            {"type": "object", "patternProperties": dict.fromkeys("abcdef", True)},
            "more than 5 patterns",
        ),
        (
            {
                "allOf": [
                    {"anyOf": [{"pattern": c}, {"pattern": c * 2}]} for c in "abcdef"
                ]
            },
            "more than 5 patterns",
        ),
        (nested(600), "nested more than 1000 names"),
        (nested(10_000), "nested more than 1000 names"),
        (
            {"properties": {f"p{i}": keyed(True) for i in range(MAX_PARTS)}},
            "more than",
        ),
        ({"$ref": "#/allOf/²", "allOf": [True]}, "leads to no schema"),
    ],
    ids=["patterns", "alternatives", "deep", "deeper", "wide", "superscript"],
)
def test_what_would_take_for_ever_is_refused_in_words(schema: Any, words: str) -> None:
    with pytest.raises(GrammarError, match=words):
        parse(schema)


def test_200_levels_are_read() -> None:
    assert accepts(nested(200), '{"a":' * 199 + "{}" + "}" * 199)


def test_a_long_completion_costs_memory_only_once() -> None:
    """The rest of each of 62,000 ways would be 2 billion numbers."""
    inner = {"type": "array", "minItems": 30}
    schema = {"type": "array", "minItems": 1000, "items": inner}
    made = grammar.compile(schema, VOCABULARY)
    start = made.start()
    assert not made.can_finish(start, 50)
    way = made.finish(start)
    assert made.can_finish(start, len(way))
    assert len(made._completion._known) == 1
