from __future__ import annotations

from tinyllm.grammar.jsonschema.receipt import receipt


def test_each_keyword_has_its_place_and_verdict_in_order() -> None:
    schema = {
        "title": "t",
        "type": "object",
        "properties": {"a/b": {"type": "string", "minLength": 1}},
        "additionalProperties": False,
    }
    assert receipt(schema) == [
        ("#", "title", "annotation"),
        ("#", "type", "enforced"),
        ("#", "properties", "enforced"),
        ("#", "additionalProperties", "enforced"),
        ("#/properties/a~1b", "type", "enforced"),
        ("#/properties/a~1b", "minLength", "enforced"),
    ]


def test_all_that_is_refused_is_named_not_only_the_first() -> None:
    schema = {
        "uniqueItems": True,
        "items": {"not": {"items": {"type": "string"}}, "format": "iri"},
        "oneOf": [{"contains": {}}, {"type": "null"}],
    }
    refused = {row[:2] for row in receipt(schema) if row[2] == "refused"}
    assert refused == {
        ("#", "uniqueItems"),
        ("#/items", "not"),
        ("#/items", "format"),
        ("#/oneOf/0", "contains"),
    }


def test_a_definition_that_nothing_refers_to_says_nothing() -> None:
    unused = {"$defs": {"x": {"uniqueItems": True}}, "type": "array"}
    assert ("#/$defs/x", "uniqueItems", "annotation") in receipt(unused)
    used = unused | {"items": {"$ref": "#/$defs/x"}}
    assert ("#/$defs/x", "uniqueItems", "refused") in receipt(used)


def test_what_is_refused_for_its_size_has_a_row_too() -> None:
    rows = receipt({"type": "string", "pattern": "[ab]*a[ab]{20}"})
    assert [row for row in rows if row[2] == "refused"] == [("#", "", "refused")]
    rows = receipt({"type": "object", "minProperties": 2})
    assert ("#", "minProperties", "refused") in rows


def test_a_boolean_schema_has_no_keywords() -> None:
    assert receipt(True) == receipt(False) == []
