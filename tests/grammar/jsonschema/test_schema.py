from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grammar_acceptor import acceptor, allows
from tests.toy_tokenizer import is_json
from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.read import parse
from tinyllm.grammar.pushdown import Pushdown


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
    reader = acceptor({"type": name})
    for length in range(6):
        for letters in itertools.product('-01"\\nu', repeat=length):
            text = "".join(letters)
            assert reader.accepts(text.encode()) is is_json(text, kind), text


@pytest.mark.parametrize("n_required", range(4))
def test_every_choice_of_optional_members_has_its_commas(n_required: int) -> None:
    keys = "abc"
    for required in itertools.combinations(keys, n_required):
        reader = acceptor(closed(dict.fromkeys(keys, INTEGER), *required))
        for present in itertools.product((False, True), repeat=len(keys)):
            chosen = [key for key, there in zip(keys, present, strict=True) if there]
            text = "{" + ",".join(f'"{key}":0' for key in chosen) + "}"
            assert reader.accepts(text.encode()) is set(required).issubset(chosen)


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


def canonical(value: object) -> object:
    """The value with whole numbers as integers, as a given value is written."""
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole else value  # type: ignore[call-overload]


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(VALUES, VALUES)
def test_const_allows_its_value_and_no_other(value: object, other: object) -> None:
    assert allows({"const": value}, compact(canonical(value)))
    equal = compact(canonical(value)) == compact(other)
    assert allows({"const": value}, compact(other)) is equal


# Each row: a schema, texts that are allowed, texts that are not.
OPEN = {"properties": {"a": INTEGER}, "required": ["a"]}
TREE = {
    "$ref": "#/$defs/n",
    "$defs": {"n": {"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}}},
}
WIDE: list[tuple[Any, list[str], list[str]]] = [
    (True, ["null", '{"a":[1,{"b":"c"}]}', "-0.5e1"], ["", "{", "[1 ]"]),
    (False, [], ["null", "{}"]),
    (OPEN, ['{"a":1}', '{"a":1,"b":[]}', "3"], ["{}", '{"b":1,"a":1}', '{"a":"x"}']),
    (OPEN, ['{"a":1,"ab":null,"":0}'], ['{"a":1,"a":2}', r'{"a":1,"\u0061":2}']),
    (
        {"properties": {"ab": NUMBER}, "additionalProperties": STRING},
        ['{"abc":"x"}', '{"a":"x"}', '{"ab":1,"é":""}'],
        ['{"ab":"x"}', '{"x":1}'],
    ),
    (
        {"type": "object", "required": ["z", "y"]},
        ['{"z":1,"y":2,"x":3}'],
        ['{"z":1}', '{"y":2,"z":1}', '{"x":3,"z":1,"y":2}'],
    ),
    (
        {"type": "array", "prefixItems": [STRING, INTEGER], "items": {"const": 0}},
        ["[]", '["a"]', '["a",1]', '["a",1,0,0]'],
        ["[1]", '["a",1,1]', '["a",]'],
    ),
    (
        {"type": "array", "prefixItems": [INTEGER], "minItems": 2, "maxItems": 3},
        ['[1,"a"]', "[1,2,3]"],
        ["[]", "[1]", "[1,2,3,4]", '["a",1]'],
    ),
    (
        {"allOf": [{"items": {"minimum": 3}}, {"items": {"maximum": 5}}]},
        ["[3,4.5,5]", '["a"]'],
        ["[2]", "[3,6]"],
    ),
    (
        {"allOf": [{"type": "object"}, OPEN, {"additionalProperties": STRING}]},
        [],
        ['{"a":1}', '{"a":"x"}'],
    ),
    (
        {"anyOf": [{"const": 1}, {"type": "string"}], "maxLength": 1},
        ["1", '"a"'],
        ["2"],
    ),
    ({"oneOf": [INTEGER, {"minimum": 2}]}, ["1", "2.5", '"a"'], ["3", "1.5"]),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a":1}'], ["{}", "1"]),
    ({"not": STRING}, ["1", "[]"], ['"a"']),
    ({"not": {"enum": ["a", 1]}}, ['"b"', "1.5", "true"], ['"a"', "1"]),
    ({"type": "integer", "not": {"multipleOf": 3}}, ["4", "-2"], ["3", "0", "-6"]),
    (
        {"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
        ['{"a":1,"b":2}', '{"a":2}', "0"],
        ['{"a":1}', "{}"],
    ),
    ({"dependentRequired": {"a": ["b"]}}, ['{"a":1,"b":1}', '{"b":1}'], ['{"a":1}']),
    (
        {"dependentSchemas": {"a": {"properties": {"b": INTEGER}}}},
        ['{"a":1,"b":1}', '{"b":"x"}'],
        ['{"a":1,"b":"x"}'],
    ),
    (
        {
            "patternProperties": {"^s": STRING, "^n": NUMBER},
            "additionalProperties": False,
        },
        ['{"s":"","n":1,"s1":"x"}'],
        ['{"s":1}', '{"x":1}'],
    ),
    ({"propertyNames": {"maxLength": 1}}, ['{"a":1,"b":2}'], ['{"ab":1}']),
    (
        {"propertyNames": {"enum": ["a"]}, "properties": {"b": True}},
        ['{"a":1}'],
        ['{"b":1}'],
    ),
    ({"maxProperties": 1}, ["{}", '{"a":1}'], ['{"a":1,"b":2}']),
    ({"minProperties": 1, "properties": {"a": True}}, ['{"a":1}', '{"b":1}'], ["{}"]),
    (TREE, ["{}", '{"c":{"c":{"c":{}}}}'], ['{"c":1}', '{"c":{"c":1}}']),
    ({"$ref": "#x", "$defs": {"a": {"$anchor": "x", "type": "null"}}}, ["null"], ["1"]),
    ({"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": INTEGER}}, ["3"], ["4", "2.5"]),
    ({"enum": [{"a": 1}, [2], 1]}, ['{"a":1}', "[2]", "1"], ['{"a":2}', "[1]", "2"]),
    (
        {"enum": [{"a": 1}, {"a": 2}], "properties": {"a": {"minimum": 2}}},
        ['{"a":2}'],
        [],
    ),
    ({"const": 1.0}, ["1"], ["true", "1.0"]),
    ({"enum": []}, [], ["1"]),
    ({"type": "string", "pattern": "b"}, ['"abc"', r'"\u0062"'], ['"ac"', '""']),
    ({"type": "string", "pattern": "^a|b$"}, ['"ax"', '"xb"'], ['"xa"', '"bx"']),
    ({"type": "string", "pattern": "^.$"}, ['"é"', r'"\t"'], [r'"\n"', '"ab"']),
    ({"pattern": "^a*$", "minLength": 2, "maxLength": 3}, ['"aa"'], ['"a"', '"aaaa"']),
    (
        {"unevaluatedProperties": False, "properties": {"a": True}},
        ['{"a":1}'],
        ['{"b":1}'],
    ),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), WIDE)
def test_each_keyword_allows_its_values_and_no_others(
    schema: Any, inside: list[str], outside: list[str]
) -> None:
    reader = acceptor(schema)
    for text in inside:
        assert reader.accepts(text.encode()), text
    for text in outside:
        assert not reader.accepts(text.encode()), text


def test_with_spaces_at_most_one_follows_a_comma_or_a_colon() -> None:
    for text in ('{"a": 1, "b":[1, 2]}', '{"a":1,"b": [1,2]}'):
        assert allows(OPEN, text, spaces=True)
    assert not allows(OPEN, '{"a": 1}')
    for text in ('{ "a":1}', '{"a" :1}', '{"a":  1}', '{"a":1 }', '{"a":1,\n"b":2}'):
        assert not allows(OPEN, text, spaces=True)


REFUSED: list[tuple[Any, str]] = [
    ({"uniqueItems": True}, "#: uniqueItems cannot be enforced"),
    ({"contains": {}}, "#: contains"),
    ({"unheard": 1}, "#: unheard"),
    (
        {"type": "array", "items": {"properties": {"a/b": {"x": 1}}}},
        "#/items/.*a~1b: x",
    ),
    ({"format": "iri"}, "#: format 'iri' is none of"),
    ({"pattern": "(?=a)"}, "#: pattern cannot be enforced: lookahead"),
    ({"pattern": "[ab]*a[ab]{20}"}, "#: .*states"),
    ({"patternProperties": {"(": 1}}, "#: patternProperties"),
    ({"$ref": "http://x.org/a"}, r"#: \$ref .* leads out of the document"),
    ({"$ref": "#/$defs/a"}, r"#: \$ref .* leads to no schema"),
    ({"$ref": "#"}, r"#: \$ref leads back to itself"),
    ({"allOf": [{"anyOf": [{"$ref": "#"}]}]}, r"#: \$ref leads back to itself"),
    ({"$dynamicRef": "#a"}, r"#: \$dynamicRef"),
    ({"$schema": "http://x.org/mine"}, r"#: \$schema names"),
    ({"oneOf": [{"items": STRING}, {"items": INTEGER}]}, "#: oneOf.* 0 and 1"),
    ({"not": {"items": STRING}}, "#: not cannot be enforced"),
    ({"anyOf": []}, "#: anyOf"),
    ({"items": [STRING]}, "#: items must be one schema"),
    ({"minProperties": 2}, "#: minProperties above 1"),
    ({"unevaluatedProperties": False, "allOf": [{}]}, "#: unevaluatedProperties"),
    ({"minLength": -1}, "#: minLength must be a count"),
    ({"minLength": True}, "#: minLength must be a number"),
    ({"maxLength": float("inf")}, "#: maxLength must be finite"),
    ({"maxLength": 10**10}, "#: maxLength"),
    ({"maxItems": 10**5000}, "#: maxItems"),
    ({"multipleOf": 0}, "#: multipleOf must be above 0"),
    ({"type": "integer", "multipleOf": 123_457}, "#: .*multiple"),
    ({"type": []}, "#: type is an empty list"),
    ({"type": "x"}, "#: type 'x' is none of"),
    ({"items": 0}, "#/items: a schema must be a dict or a bool"),
    ({"enum": "ab"}, "#: enum must be a list"),
    ({"required": [[1]]}, "#: required holds"),
    ({"properties": {"\ud800": STRING}}, "#: properties holds"),
    ({"const": float("nan")}, "#: const .*holds nan"),
    ({"const": "\ud800"}, "#: const"),
    ({"const": {1: 2}}, "#: const"),
    ({"const": (1, 2)}, "#: const"),
    ({"const": 10**5000}, "#: const .*<int"),
    ({10**5000: 1}, "#: a keyword must be a text"),
]


@pytest.mark.parametrize(
    ("schema", "named"), REFUSED, ids=[named for _, named in REFUSED]
)
def test_what_cannot_be_enforced_is_refused_with_keyword_and_path(
    schema: Any, named: str
) -> None:
    with pytest.raises(GrammarError, match=named) as caught:
        parse(schema)
    assert str(caught.value).encode()


def test_annotations_change_nothing() -> None:
    notes = {
        "title": "t",
        "description": "d",
        "default": 7,
        "examples": ["x"],
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }
    assert parse(STRING | notes) == parse(STRING)


def nested(schema: Any, depth: int) -> dict[str, Any]:
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
    return schema


def test_two_hundred_levels_of_schema_or_value_are_read() -> None:
    text = "[" * 200 + "0" + "]" * 200
    assert allows(nested(INTEGER, 200), text)
    assert not allows(nested(INTEGER, 200), text[1:-1])
    assert allows({"const": json.loads(text)}, text)
    assert allows(True, text)


def test_recursive_schemas_that_meet_come_to_an_end() -> None:
    lists = {"$defs": {"l": {"items": {"$ref": "#/$defs/l"}}, "a": {"type": "array"}}}
    lists["$defs"]["b"] = {"type": "array", "items": {"$ref": "#/$defs/b"}}
    both = lists | {"allOf": [{"$ref": "#/$defs/l"}, {"$ref": "#/$defs/b"}]}
    assert allows(both, "[[],[[]]]")
    assert not allows(both, "[[],[1]]")


def test_branches_that_recur_are_told_apart_by_what_is_known_of_them() -> None:
    leaf = closed({"kind": {"const": "leaf"}, "of": INTEGER}, "kind", "of")
    node = closed({"kind": {"const": "node"}, "of": {"$ref": "#"}}, "kind", "of")
    tree = {"oneOf": [leaf, node]}
    assert allows(tree, '{"kind":"node","of":{"kind":"leaf","of":1}}')
    assert not allows(tree, '{"kind":"node","of":1}')
    unlike = {"oneOf": [closed({"of": {"$ref": "#"}}, "of"), {"type": "null"}]}
    assert allows(unlike, '{"of":{"of":null}}')


def test_a_value_that_would_never_end_is_left_out() -> None:
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    reader = acceptor({"$defs": {"e": endless}} | endless)
    assert not reader.accepts(b'{"a":{}}')
    optional = {"properties": {"b": endless | {"properties": {"a": False}}}}
    assert allows(optional, "{}")
    assert not allows(optional, '{"b":{"a":1}}')


@pytest.mark.parametrize("n", [4_800, 60_000])
def test_lengths_and_counts_are_exact_far_beyond_what_could_be_copied(n: int) -> None:
    text = machine(STRING | {"minLength": n, "maxLength": n})
    items = machine({"items": INTEGER, "minItems": n, "maxItems": n, "type": "array"})
    for length in (n - 1, n, n + 1):
        assert text.accepts(('"' + "é" * length + '"').encode()) is (length == n)
        assert items.accepts(b"[" + b",".join([b"7"] * length) + b"]") is (length == n)


@pytest.mark.parametrize(
    "schema",
    [
        STRING | {"minLength": 10**6, "maxLength": 10**6},
        STRING | {"not": {"maxLength": 10**6}},
        {"type": "array", "items": STRING, "maxItems": 10**6},
        {"propertyNames": {"maxLength": 10**6}},
    ],
)
def test_a_bound_of_a_million_needs_no_larger_graph_than_one_of_a_hundred(
    schema: Any,
) -> None:
    big, small = machine(schema).network.graph, machine(smaller(schema)).network.graph
    assert len(big.free) <= len(small.free) + 2  # it may be a rule of its own


def smaller(schema: Any) -> Any:
    """Return the same schema with bounds of a hundred in place of a million."""
    return json.loads(json.dumps(schema).replace("1000000", "100"))


def machine(schema: Any) -> Pushdown:
    """Return the machine of a schema."""
    return Pushdown(parse(schema), range(256), range(256))


def test_a_length_beside_a_pattern_has_a_limit_that_the_error_names() -> None:
    both = STRING | {"pattern": "^[a-z]+$"}
    assert machine(both | {"maxLength": 4_000}).accepts(b'"abc"')
    with pytest.raises(
        GrammarError, match=r"#: .* pattern \^\[a-z\]\+\$, maxLength 50000"
    ):
        parse(both | {"maxLength": 50_000})
    with pytest.raises(GrammarError, match=r"#: .* email, minLength 9000 needs"):
        parse(STRING | {"format": "email", "minLength": 9_000})


def test_large_unions_stay_within_their_bounds() -> None:
    assert machine({"items": SEARCHES, "maxItems": 2000, "type": "array"}).accepts(
        b"[]"
    )
    words = [f"word{n}" for n in range(1000)]
    assert allows({"enum": words}, '"word777"')
    tools = [closed({"tool": {"const": word}}, "tool") for word in words[:100]]
    for keyword in ("anyOf", "oneOf"):
        reader = acceptor({keyword: tools})
        assert reader.accepts(b'{"tool":"word42"}')
        assert not reader.accepts(b'{"tool":"word100"}')


def test_every_number_that_the_grammar_writes_is_finite() -> None:
    largest = "9" * 20 + ".9e199"
    assert allows(NUMBER, largest)
    assert json.loads(largest) < float("inf")
    for refused in ("1e999", "1e200", "9" * 21, "1e0001"):
        assert not allows(NUMBER, refused)
    assert allows(NUMBER, "1e-199")
