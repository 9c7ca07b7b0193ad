"""JSON Schema, read into an expression tree: what is not enforced is refused.

Public: parse, MAX_DEPTH.

Supported: type (one or a list), enum, const, anyOf, properties, required,
additionalProperties, items, minItems, maxItems, minLength, maxLength; title,
description, default, examples, $schema and $comment say nothing about a value and are
skipped. Any other keyword, or one that the stated type does not use, raises
GrammarError with keyword and path. No annotation changes what is written.

Texts are compact, with keys in the order of the schema (see json_text). Decisions:
- An object must say "additionalProperties": false. JSON Schema reads its absence as
  "any further key", which cannot be written yet, and silently reading it as false would
  be another language: so it is refused.
- A schema without type, const, enum or anyOf allows every type and is refused too.
- enum and const beside type keep the values of that type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tinyllm.errors import GrammarError
from tinyllm.grammar import json_text
from tinyllm.grammar.expression import (
    MAX_SIZE,
    Alternation,
    Expression,
    check_size,
)

MAX_DEPTH = 200  # schemas inside schemas

Schema = Mapping[str, Any]
_SILENT = {"title", "description", "default", "examples", "$schema", "$comment"}
_KEYWORDS = {
    "string": {"minLength", "maxLength"},
    "integer": set[str](),
    "number": set[str](),
    "boolean": set[str](),
    "null": set[str](),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def parse(schema: Schema, path: str = "#", depth: int = 0) -> Expression:
    """The expression tree of all compact JSON texts that a schema allows.

    Raises GrammarError, which names keyword and path, for what cannot be enforced.
    """
    if not isinstance(schema, Mapping):
        raise _refuse(path, f"a schema must be a dict, not {_shown(schema)}")
    if depth > MAX_DEPTH:
        raise _refuse(path[:80], f"schemas are nested more than {MAX_DEPTH} deep")
    if "const" in schema or "enum" in schema:
        return _values(schema, path)
    if "anyOf" in schema:
        return _any_of(schema, path, depth)
    names = _types(schema, path)
    _only(schema, {"type"}.union(*(_KEYWORDS[name] for name in names)), path)
    return _one_of([_PARSERS[name](schema, path, depth) for name in names])


def _refuse(path: str, what: str) -> GrammarError:
    message = f"{path}: {what}".encode("utf-8", "backslashreplace")  # lone surrogates
    return GrammarError(message.decode())


def _shown(value: object) -> str:
    """The value for a message, cut; its type if it is too large or deep to be shown."""
    try:
        return f"{value!r:.40}"
    except (ValueError, RecursionError):
        return f"<{type(value).__name__} too large to show>"


def _one_of(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Alternation(tuple(options))


def _only(schema: Schema, used: set[str], path: str) -> None:
    for keyword in schema:
        if not isinstance(keyword, str):
            raise _refuse(path, f"a keyword must be a text, not {_shown(keyword)}")
        if keyword not in used | _SILENT:
            others = ", ".join(sorted(used & set(schema)))
            beside = f" beside {others}" if others else ""
            raise _refuse(path, f"{keyword} cannot be enforced{beside}")


def _types(schema: Schema, path: str) -> list[str]:
    if "type" not in schema:
        _only(schema, set(), path)
        raise _refuse(path, "no type: state type, const, enum or anyOf")
    given = schema["type"]
    names = given if isinstance(given, list) else [given]
    for name in names:
        if not isinstance(name, str) or name not in _KEYWORDS:
            raise _refuse(
                path, f"type {_shown(name)} is none of {', '.join(_KEYWORDS)}"
            )
    if not names:
        raise _refuse(path, "type is an empty list, which allows nothing")
    return names


def _values(schema: Schema, path: str) -> Expression:
    """The values of enum or const, those of the stated type only."""
    keyword = "enum" if "enum" in schema else "const"
    _only(schema, {"type", keyword}, path)
    values = schema["enum"] if keyword == "enum" else [schema["const"]]
    if not isinstance(values, list):
        raise _refuse(path, f"enum must be a list, not {_shown(values)}")
    names = _types(schema, path) if "type" in schema else list(_KEYWORDS)
    options = []
    for value in values:
        spelling = _spelling(value, path, keyword)
        if any(_is_a(value, name) for name in names):
            options.append(spelling)
    if not options:
        raise _refuse(path, f"{keyword} leaves no value of the stated type")
    return check_size(_one_of(options), f"{path}: {keyword}")


def _spelling(value: object, path: str, keyword: str) -> Expression:
    try:
        return json_text.spelled(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refuse(
            path, f"{keyword} holds {_shown(value)}, which cannot be written as JSON"
        ) from error


def _is_a(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON_TYPES[name])


def _any_of(schema: Schema, path: str, depth: int) -> Expression:
    _only(schema, {"anyOf"}, path)
    options = schema["anyOf"]
    if not isinstance(options, list) or not options:
        raise _refuse(path, "anyOf must be a list of at least one schema")
    trees = []
    for i, option in enumerate(options):
        trees.append(parse(option, f"{path}/anyOf/{i}", depth + 1))
    return check_size(_one_of(trees), f"{path}: anyOf")


def _bounds(schema: Schema, least: str, most: str, path: str) -> tuple[int, int | None]:
    bounds: list[int | None] = [0, None]
    for i, keyword in enumerate((least, most)):
        if keyword in schema:
            value = schema[keyword]
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _refuse(path, f"{keyword} must be a number, not {_shown(value)}")
            if value < 0 or (isinstance(value, float) and not value.is_integer()):
                raise _refuse(path, f"{keyword} must be a count, not {_shown(value)}")
            if value > MAX_SIZE:
                what = f"{_shown(value)} needs more than {MAX_SIZE:,} automaton nodes"
                raise _refuse(path, f"{keyword} {what}")
            bounds[i] = int(value)
    low, high = bounds[0] or 0, bounds[1]
    if high is not None and low > high:
        raise _refuse(path, f"{least} {low} exceeds {most} {high}")
    return low, high


def _string(schema: Schema, path: str, depth: int) -> Expression:
    tree = json_text.string(*_bounds(schema, "minLength", "maxLength", path))
    return check_size(tree, f"{path}: minLength or maxLength")


def _array(schema: Schema, path: str, depth: int) -> Expression:
    low, high = _bounds(schema, "minItems", "maxItems", path)
    if "items" not in schema:
        raise _refuse(path, "an array without items allows every type: state items")
    item = parse(schema["items"], f"{path}/items", depth + 1)
    tree = json_text.array(item, low, high)
    return check_size(tree, f"{path}: minItems or maxItems")


def _object(schema: Schema, path: str, depth: int) -> Expression:
    if schema.get("additionalProperties", True) is not False:
        hint = 'write "additionalProperties": false'
        raise _refuse(path, f"additionalProperties must be false: {hint}")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise _refuse(path, "properties must be a dict and required a list")
    for name in required:
        if not isinstance(name, str) or name not in properties:
            raise _refuse(path, f"required names {_shown(name)}, not one of properties")
    members = []
    for key, value in properties.items():
        if not isinstance(key, str):
            raise _refuse(path, f"properties has the key {_shown(key)}, not a string")
        at = f"{path}/properties/{key.replace('~', '~0').replace('/', '~1')}"
        _spelling(key, at, "properties")
        members.append((key, parse(value, at, depth + 1), key in required))
    return check_size(json_text.object_of(members), f"{path}: properties")


_PARSERS: dict[str, Callable[[Schema, str, int], Expression]] = {
    "string": _string,
    "integer": lambda schema, path, depth: json_text.INTEGER,
    "number": lambda schema, path, depth: json_text.NUMBER,
    "boolean": lambda schema, path, depth: json_text.BOOLEAN,
    "null": lambda schema, path, depth: json_text.NULL,
    "array": _array,
    "object": _object,
}
