from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_tokenizer import accepts, is_json

from tinyllm.errors import GrammarError
from tinyllm.grammar.automaton import Automaton
from tinyllm.grammar.schema import MAX_DEPTH, parse


def allows(schema: dict[str, Any], text: str | bytes) -> bool:
    data = text.encode() if isinstance(text, str) else text
    return accepts(Automaton(parse(schema)), data)


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
AB = closed({"a": NUMBER, "b": NUMBER})
OPTIONAL_AROUND = closed({"a": NUMBER, "b": NUMBER, "c": NUMBER}, "b")
NUMBERS = {"type": "array", "items": NUMBER}
MIXED = {"enum": [1, None, True, "1"]}
SEARCHES = {
    "anyOf": [
        closed(
            {"tool": {"const": name}, "args": closed({"q": STRING}, "q")},
            "tool",
            "args",
        )
        for name in ("search", "search_web")
    ]
}

# Rows of the edge cases that use only supported keywords: schema, text, allowed.
ROWS: list[tuple[dict[str, Any], str | bytes, bool]] = [
    (STRING, '"a\tb"', False),
    (STRING, '"\x1f"', False),
    (STRING, '"\x85"', True),
    (STRING, '"\x7f"', True),
    ({"type": "string", "maxLength": 9}, r'"a\nb"', True),
    ({"type": "string", "maxLength": 3}, r'"a\nb"', True),
    ({"type": "string", "maxLength": 2}, r'"a\nb"', False),
    (STRING, r'"\u00e9"', True),
    (STRING, r'"\ud83d\ude00"', True),
    ({"type": "string", "maxLength": 1}, r'"\ud83d\ude00"', True),
    (STRING, r'"\ud800"', False),
    (STRING, r'"\ude00\ud83d"', False),
    (STRING, r'"\ud83dx"', False),
    (STRING, r'"\ud83d\ud83d"', False),
    (STRING, r'"\uD83D\uDE00\uD7FF\uE000"', True),
    (STRING, r'"\u0000"', True),
    ({"type": "string", "maxLength": 1}, '"😀"', True),
    ({"type": "string", "minLength": 2}, '"😀"', False),
    (STRING, r'"\/"', True),
    (STRING, r'"\x"', False),
    (STRING, r'"\u12"', False),
    (STRING, b'"\xc0\x80"', False),
    (STRING, b'"\xf4\x90\x80\x80"', False),
    (STRING, b'"\xed\xa0\x80"', False),
    (STRING, '"a', False),
    (NUMBER, "01", False),
    (NUMBER, "-0.5", True),
    (NUMBER, ".5", False),
    (NUMBER, "5.", False),
    (NUMBER, "-", False),
    (NUMBER, "+1", False),
    (NUMBER, "1E+05", True),
    (NUMBER, "0e0", True),
    (NUMBER, "1e", False),
    (NUMBER, "NaN", False),
    (INTEGER, "007", False),
    (INTEGER, "-0", True),
    (INTEGER, "1.0", False),
    (INTEGER, "1e2", False),
    (INTEGER, "1" * 30, True),
    (closed({}), "{}", True),
    (closed({}), "{ }", False),
    (closed({}), '{"a":1}', False),
    (NUMBERS | {"maxItems": 0}, "[1]", False),
    (NUMBERS | {"maxItems": 0}, "[]", True),
    (NUMBERS, "[\n]", False),
    (AB, '{"b":1}', True),
    (AB, '{,"b":1}', False),
    (AB, '{"a":1,}', False),
    (AB, '{"a":1"b":1}', False),
    (AB, '{"a":1,"a":1}', False),
    (AB, '{"b":1,"a":1}', False),
    (OPTIONAL_AROUND, '{"a":1,"b":1}', True),
    (OPTIONAL_AROUND, '{"a":1}', False),
    (NUMBERS, "[1,]", False),
    (NUMBERS, "[,1]", False),
    (NUMBERS, json.dumps([1] * 25, separators=(",", ":")), True),
    ({"type": "string", "enum": ["a", "ab"]}, '"a"', True),
    ({"type": "string", "enum": ["a", "ab"]}, '"ab"', True),
    ({"type": "string", "enum": ["a", "ab"]}, '"b"', False),
    ({"type": "string", "enum": ['say "hi"']}, r'"say \"hi\""', True),
    ({"type": "string", "enum": ["a\tb"]}, r'"a\tb"', True),
    ({"type": "string", "enum": ["é"]}, '"é"', True),
    ({"type": "string", "enum": ["é"]}, r'"\u00e9"', False),
    (MIXED, "null", True),
    (MIXED, "true", True),
    (MIXED, '"1"', True),
    (MIXED, "None", False),
    (MIXED | {"type": "boolean"}, "1", False),
    (MIXED | {"type": "integer"}, "true", False),
    ({"const": 10}, "100", False),
    ({"const": {"a": [1, None]}}, '{"a":[1,null]}', True),
    (SEARCHES, '{"tool":"search","args":{"q":""}}', True),
    (SEARCHES, '{"tool":"search_web","args":{"q":"x"}}', True),
    (SEARCHES, '{"tool":"search_","args":{"q":"x"}}', False),
    (closed({"a": NUMBER, "aa": NUMBER}), '{"aa":1}', True),
    (closed({'a"b': NUMBER}, 'a"b'), r'{"a\"b":1}', True),
    ({"type": ["string", "null"]}, "null", True),
    ({"type": ["string", "null"]}, "0", False),
    (closed({"a": NUMBER}, "a"), '{"a": 1}', False),
    (closed({"a": NUMBER}, "a"), ' {"a":1}', False),
    (closed({"a": NUMBER}, "a"), '{"a":1} ', False),
    (closed({"a": NUMBER}, "a"), '{\f"a":1}', False),
    ({"type": "boolean"}, "True", False),
    ({"type": "null"}, "null", True),
]


@pytest.mark.parametrize(("schema", "text", "allowed"), ROWS)
def test_edge_cases_are_decided_rightly(
    schema: dict[str, Any], text: str | bytes, allowed: bool
) -> None:
    assert allows(schema, text) is allowed


@pytest.mark.parametrize(("name", "kind"), [("integer", int), ("string", str)])
def test_all_short_texts_are_decided_as_pythons_reader_does(
    name: str, kind: type
) -> None:
    automaton = Automaton(parse({"type": name}))
    for length in range(6):
        for letters in itertools.product('-01"\\nu', repeat=length):
            text = "".join(letters)
            assert accepts(automaton, text.encode()) is is_json(text, kind), text


@pytest.mark.parametrize("n_required", range(4))
def test_every_choice_of_optional_members_has_its_commas(n_required: int) -> None:
    keys = "abc"
    for required in itertools.combinations(keys, n_required):
        automaton = Automaton(parse(closed(dict.fromkeys(keys, INTEGER), *required)))
        for present in itertools.product((False, True), repeat=len(keys)):
            chosen = [key for key, there in zip(keys, present, strict=True) if there]
            text = "{" + ",".join(f'"{key}":0' for key in chosen) + "}"
            assert accepts(automaton, text.encode()) is set(required).issubset(chosen)


@pytest.mark.parametrize(("least", "most"), [(0, 2), (1, 1), (2, 3), (0, None)])
def test_item_and_length_bounds_count_exactly(least: int, most: int | None) -> None:
    items: dict[str, Any] = {"type": "array", "items": INTEGER, "minItems": least}
    text: dict[str, Any] = {"type": "string", "minLength": least}
    if most is not None:
        items["maxItems"] = text["maxLength"] = most
    for n in range(6):
        fits = least <= n <= (n if most is None else most)
        assert allows(items, "[" + ",".join("7" * n) + "]") is fits
        assert allows(text, '"' + "é" * n + '"') is fits
        assert allows(text, '"' + r"\ud83d\ude00" * n + '"') is fits


@given(st.text(st.characters(codec="utf-8"), max_size=8), st.booleans())
def test_any_string_is_writable_raw_or_escaped(text: str, escape: bool) -> None:
    written = json.dumps(text, ensure_ascii=escape)
    exact = {"type": "string", "minLength": len(text), "maxLength": len(text)}
    assert allows(exact, written)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner)
    ),
    max_leaves=5,
)


@given(VALUES, VALUES)
def test_const_allows_its_value_and_no_other(value: object, other: object) -> None:
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    others = json.dumps(other, ensure_ascii=False, separators=(",", ":"))
    assert allows({"const": value}, written)
    assert allows({"const": value}, others) is (written == others)


REFUSED: list[tuple[Any, str]] = [
    ({"type": "string", "pattern": "a"}, "#: pattern cannot be enforced"),
    ({"type": "string", "format": "date"}, "#: format"),
    ({"type": "integer", "minimum": 0}, "#: minimum"),
    ({"type": "string", "minItems": 1}, "#: minItems cannot be enforced beside type"),
    ({"$ref": "#"}, r"#: \$ref"),
    ({"oneOf": [STRING]}, "#: oneOf"),
    ({"anyOf": [STRING], "type": "string"}, "#: type cannot be enforced beside anyOf"),
    ({"anyOf": []}, "#: anyOf"),
    ({"anyOf": [STRING, {"not": {}}]}, "#/anyOf/1: not"),
    (closed({"a/b": closed({"c": {"type": "x"}})}), "#/properties/a~1b/properties/c"),
    ({"type": "object", "properties": {}}, "#: additionalProperties must be false"),
    ({"type": "object", "additionalProperties": True}, "#: additionalProperties"),
    ({"type": "object", "additionalProperties": 0}, "#: additionalProperties"),
    (closed({"a": STRING}, "b"), "#: required names 'b'"),
    ({"type": "array"}, "#: an array without items"),
    ({"type": "array", "items": True}, "#/items: a schema must be a dict"),
    ({"type": "array", "items": {}}, "#/items: no type"),
    ({"type": "array", "items": STRING, "uniqueItems": True}, "#: uniqueItems"),
    ({"type": "array", "items": STRING, "minItems": 2, "maxItems": 1}, "exceeds"),
    ({"type": "string", "minLength": -1}, "#: minLength must be a count"),
    ({"type": "string", "minLength": True}, "#: minLength must be a number"),
    ({"type": "string", "maxLength": float("inf")}, "#: maxLength must be a count"),
    ({"type": "string", "maxLength": 10**5}, "#: minLength or maxLength needs"),
    ({"type": []}, "#: type is an empty list"),
    ({}, "#: no type"),
    (True, "#: a schema must be a dict"),
    ({"enum": []}, "#: enum leaves no value"),
    ({"enum": "ab"}, "#: enum must be a list"),
    ({"enum": [1], "type": "string"}, "#: enum leaves no value"),
    ({"enum": [1], "const": 1}, "#: const cannot be enforced beside enum"),
    ({"const": "a", "minLength": 1}, "#: minLength cannot be enforced beside const"),
    ({"const": float("nan")}, "#: const holds nan"),
    ({"const": float("inf")}, "#: const holds inf"),
    ({"const": "\ud800"}, "#: const"),
    ({"const": {1: 2}}, "#: const"),
    ({"const": (1, 2)}, "#: const"),
    (closed({"\ud800": STRING}), "properties"),
]


@pytest.mark.parametrize(("schema", "named"), REFUSED)
def test_what_cannot_be_enforced_is_refused_with_keyword_and_path(
    schema: Any, named: str
) -> None:
    with pytest.raises(GrammarError, match=named):
        parse(schema)


def test_annotations_change_nothing() -> None:
    notes = {
        "title": "t",
        "description": "d",
        "default": 7,
        "examples": ["x"],
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }
    assert parse(STRING | notes) == parse(STRING)


def test_two_hundred_levels_are_read_and_more_are_refused() -> None:
    schema: dict[str, Any] = INTEGER
    for _ in range(MAX_DEPTH):
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
    assert allows(schema, "[" * MAX_DEPTH + "0" + "]" * MAX_DEPTH)
    with pytest.raises(GrammarError, match="nested more than"):
        parse({"type": "array", "items": schema})


def test_an_enum_of_a_thousand_and_a_hundred_tools_are_read() -> None:
    words = [f"word{n}" for n in range(1000)]
    assert allows({"enum": words}, '"word777"')
    tools = [closed({"tool": {"const": word}}, "tool") for word in words[:100]]
    assert allows({"anyOf": tools}, '{"tool":"word42"}')
    assert not allows({"anyOf": tools}, '{"tool":"word100"}')


def test_every_number_that_the_grammar_writes_is_finite() -> None:
    largest = "9" * 20 + ".9e199"
    assert allows(NUMBER, largest)
    assert json.loads(largest) < float("inf")
    for refused in ("1e999", "1e200", "9" * 21, "1e0001"):
        assert not allows(NUMBER, refused)
    assert allows(NUMBER, "1e-199")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (closed({"a": STRING}) | {"required": [[1]]}, "#: required"),
        ({"type": "string", "minLength": 10**5000}, "#: minLength"),
        ({"type": "string", "minLength": -(10**5000)}, "#: minLength"),
        ({"type": "array", "items": STRING, "maxItems": 10**5000}, "#: maxItems"),
        ({"const": 10**5000}, "#: const holds <int"),
        ({"const": nested(5000)}, "#: const holds <list"),
        ({10**5000: 1, "type": "string"}, "#: a keyword must be a text"),
        (closed({"\ud800": STRING}), r"\\ud800"),
        (nested(5000), "#: a schema must be a dict"),
    ],
    ids=lambda value: value if isinstance(value, str) else "schema",
)
def test_what_cannot_be_shown_is_refused_with_a_message_that_can_be(
    schema: Any, named: str
) -> None:
    with pytest.raises(GrammarError, match=named) as caught:
        parse(schema)
    assert str(caught.value).encode()
