"""The keywords that speak about values of one type, as sets of values.

Public: READERS, GROUPS, Places, Schema.

Each reader takes a place and the schema there, checks the arguments of its keywords and
returns all values that these allow, those of other types among them. The readers of
arrays and objects get the reader of the whole schema too, for the schemas inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Protocol

from tinyllm.grammar.jsonschema import values
from tinyllm.grammar.jsonschema.containers import (
    EVERY,
    NEVER,
    Arrays,
    Conjunction,
    KeyRules,
    Objects,
    conjunction,
)
from tinyllm.grammar.jsonschema.document import RefusedError, inner, shown
from tinyllm.grammar.jsonschema.formats import FORMATS
from tinyllm.grammar.jsonschema.letters import alphabet_of
from tinyllm.grammar.jsonschema.numbers import Numbers, exact
from tinyllm.grammar.jsonschema.strings import Strings, is_text
from tinyllm.grammar.jsonschema.values import ALL, MAX_BITS, Values

MAX_COUNT = 1_000_000_000
_NUMBERS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
_ARRAYS = ["prefixItems", "items", "minItems", "maxItems", "unevaluatedItems"]
_OBJECTS = ["properties", "patternProperties", "additionalProperties", "required"]
_OBJECTS += ["unevaluatedProperties", "minProperties", "maxProperties"]
_IN_PLACE = {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
_IN_PLACE |= {"$dynamicRef", "contains"}

Schema = Mapping[str, Any]


class Places(Protocol):
    """What a keyword asks of the reader of the whole schema."""

    def child(self, *names: str | int) -> Conjunction:
        """Return the conjunction of the place below a place."""

    def read(self, path: str) -> Values:
        """Return the values that the schema at a place allows."""


# The arguments of keywords


def _check(right: bool, path: str, keyword: str, what: str) -> None:
    """Raise RefusedError unless the argument of a keyword is right."""
    if not right:
        raise RefusedError(path, keyword, what)


def _number(path: str, schema: Schema, keyword: str) -> Fraction:
    """Return the number that is the argument of a keyword, exactly."""
    value = schema[keyword]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    _check(is_number, path, keyword, f"must be a number, not {shown(value)}")
    finite = not isinstance(value, float) or math.isfinite(value)
    _check(finite, path, keyword, f"must be finite, not {shown(value)}")
    small = not isinstance(value, int) or value.bit_length() <= MAX_BITS
    _check(small, path, keyword, f"is too large: {shown(value)}")
    return exact(value)


def _count(path: str, schema: Schema, keyword: str) -> int | None:
    """Return the count that is the argument of a keyword, None if it is absent."""
    if keyword not in schema:
        return None
    value, written = _number(path, schema, keyword), shown(schema[keyword])
    whole = value >= 0 and value.denominator == 1
    _check(whole, path, keyword, f"must be a count, not {written}")
    more = f"{written} is more than {MAX_COUNT:,}"
    _check(value <= MAX_COUNT, path, keyword, more)
    return int(value)


def _pattern(path: str, pattern: object, keyword: str) -> Strings:
    """Return the strings in which a pattern is found, if it is supported."""
    if not isinstance(pattern, str):
        what = f"must be a regular expression: {shown(pattern)}"
        raise RefusedError(path, keyword, what)
    alphabet_of([pattern], [])  # raises what is not supported
    return Strings(patterns=frozenset((pattern,)))


def _keys(path: str, schema: Schema, keyword: str) -> Iterator[str]:
    """Return the keys of the dict that is the argument of a keyword, if any."""
    found = schema.get(keyword, {})
    is_dict = isinstance(found, Mapping)
    _check(is_dict, path, keyword, f"must be a dict, not {shown(found)}")
    yield from _texts(path, list(found), keyword)


def _texts(path: str, texts: object, keyword: str) -> tuple[str, ...]:
    """Return the texts of a list that is the argument of a keyword."""
    if not isinstance(texts, list):
        what = f"must be a list of texts, not {shown(texts)}"
        raise RefusedError(path, keyword, what)
    for text in texts:
        what = f"holds {shown(text)}, which is not a text of JSON"
        _check(is_text(text), path, keyword, what)
    return tuple(texts)


# Types, numbers and strings


def _type(reader: Places, path: str, schema: Schema) -> Values:
    """Read type: one or several."""
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    _check(bool(names), path, "type", "is an empty list, which allows nothing")
    for name in names:
        right = isinstance(name, str) and name in values.TYPES
        what = f"{shown(name)} is none of {', '.join(values.TYPES)}"
        _check(right, path, "type", what)
    return values.union([values.TYPES[name] for name in names])


def _numbers(reader: Places, path: str, schema: Schema) -> Values:
    """Read minimum, maximum, their exclusive forms, and multipleOf."""
    found: tuple[Numbers, ...] = (Numbers(),)
    for keyword in _NUMBERS:
        if keyword not in schema:
            continue
        value = _number(path, schema, keyword)
        if keyword == "multipleOf":
            _check(value > 0, path, keyword, "must be above 0")
            more = Numbers(multiple=value)
        elif keyword in ("minimum", "exclusiveMinimum"):
            more = Numbers(low=(value, keyword != "minimum"))
        else:
            more = Numbers(high=(value, keyword != "maximum"))
        found = found[0].intersection(more) if found else ()
    return ALL._replace(numbers=found)


def _lengths(reader: Places, path: str, schema: Schema) -> Values:
    """Read minLength and maxLength, in code points."""
    low = _count(path, schema, "minLength") or 0
    high = _count(path, schema, "maxLength")
    strings = Strings(min_length=low).intersection(Strings(max_length=high))
    return ALL._replace(strings=strings)


def _one_pattern(reader: Places, path: str, schema: Schema) -> Values:
    """Read pattern: found somewhere in the string."""
    return ALL._replace(strings=(_pattern(path, schema["pattern"], "pattern"),))


def _format(reader: Places, path: str, schema: Schema) -> Values:
    """Read format: those of formats.FORMATS."""
    name = schema["format"]
    right = isinstance(name, str) and name in FORMATS
    what = f"{shown(name)} is none of {', '.join(FORMATS)}"
    _check(right, path, "format", what)
    return ALL._replace(strings=(Strings(patterns=frozenset((FORMATS[name],))),))


# Arrays and objects


def _arrays(reader: Places, path: str, schema: Schema) -> Values:
    """Read prefixItems, items, minItems, maxItems and unevaluatedItems."""
    _beside(path, schema, "unevaluatedItems")
    prefix = schema.get("prefixItems", [])
    is_list = isinstance(prefix, list)
    _check(is_list, path, "prefixItems", "must be a list of schemas")
    is_one = not isinstance(schema.get("items"), list)
    _check(is_one, path, "items", "must be one schema: write prefixItems")
    places = tuple(reader.child(path, "prefixItems", i) for i in range(len(prefix)))
    rest = _first_child(reader, path, schema, ("items", "unevaluatedItems"))
    low = _count(path, schema, "minItems") or 0
    counts = Arrays(min_items=low, max_items=_count(path, schema, "maxItems"))
    return ALL._replace(arrays=Arrays(places, rest).intersection(counts))


def _objects(reader: Places, path: str, schema: Schema) -> Values:
    """Read properties, required, additional and pattern properties, and counts."""
    _beside(path, schema, "unevaluatedProperties")
    names = list(_keys(path, schema, "properties"))
    patterns = list(_keys(path, schema, "patternProperties"))
    tests = tuple(
        (
            (_pattern(path, pattern, "patternProperties"),),
            reader.child(path, "patternProperties", pattern),
        )
        for pattern in patterns
    )
    words = ("additionalProperties", "unevaluatedProperties")
    rules = KeyRules(tests, _first_child(reader, path, schema, words))
    low = _count(path, schema, "minProperties") or 0
    high = _count(path, schema, "maxProperties")
    required = _texts(path, schema.get("required", []), "required")
    # A pattern speaks about declared keys too; additionalProperties does not.
    patterned = KeyRules(tests)
    own = tuple(
        (key, conjunction(reader.child(path, "properties", key), patterned.of(key)))
        for key in names
    )
    declared = Objects(own, (), () if rules == KeyRules() else (rules,))
    found = declared.intersection(Objects((), required, (), low, high))
    return ALL._replace(objects=found)


def _names(reader: Places, path: str, schema: Schema) -> Values:
    """Read propertyNames: a key that its schema does not allow must be absent."""
    strings = reader.read(inner(path, "propertyNames")).strings
    rules = KeyRules(((strings, EVERY),), NEVER)
    return ALL._replace(objects=(Objects(rules=(rules,)),))


def _dependent_required(reader: Places, path: str, schema: Schema) -> Values:
    """Read dependentRequired: a key is absent, or others are present too."""
    found = ALL
    for key in _keys(path, schema, "dependentRequired"):
        others = schema["dependentRequired"][key]
        needed = _texts(path, others, "dependentRequired")
        present = Objects(required=(key, *needed))
        either = _absent_or(key, ALL._replace(objects=(present,)))
        found = values.intersection(found, either)
    return found


def _dependent_schemas(reader: Places, path: str, schema: Schema) -> Values:
    """Read dependentSchemas: a key is absent, or a schema is fulfilled too."""
    found = ALL
    for key in _keys(path, schema, "dependentSchemas"):
        then = reader.read(inner(path, "dependentSchemas", key))
        present = ALL._replace(objects=(Objects(((key, EVERY),), (key,)),))
        # Its own order of keys, if it declares this one; else this key comes first.
        declares = any(key in dict(objects.properties) for objects in then.objects)
        pair = (then, present) if declares else (present, then)
        either = _absent_or(key, values.intersection(*pair))
        found = values.intersection(found, either)
    return found


def _absent_or(key: str, otherwise: Values) -> Values:
    """Return ALL, but of objects those without a key, or in another set."""
    absent = ALL._replace(objects=(Objects(properties=((key, NEVER),)),))
    return ALL._replace(objects=values.union([absent, otherwise]).objects)


def _first_child(
    reader: Places, path: str, schema: Schema, keywords: tuple[str, ...]
) -> Conjunction:
    """Return the place of the first keyword that is there, EVERY if there is none."""
    found = [keyword for keyword in keywords if keyword in schema]
    return reader.child(path, found[0]) if found else EVERY


def _beside(path: str, schema: Schema, keyword: str) -> None:
    """Refuse unevaluated… beside what evaluates in other schemas."""
    beside = sorted(_IN_PLACE & set(schema))
    alone = not beside or schema.get(keyword, True) is True
    _check(alone, path, keyword, f"cannot be enforced beside {', '.join(beside)}")


GROUPS = {  # keywords that are read together
    **dict.fromkeys(_NUMBERS, "numbers"),
    **dict.fromkeys(("minLength", "maxLength"), "lengths"),
    **dict.fromkeys(_ARRAYS, "arrays"),
    **dict.fromkeys(_OBJECTS, "objects"),
}
READERS: dict[str, Callable[[Any, str, Schema], Values]] = {
    "type": _type,
    "numbers": _numbers,
    "lengths": _lengths,
    "pattern": _one_pattern,
    "format": _format,
    "arrays": _arrays,
    "objects": _objects,
    "propertyNames": _names,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
}
