"""The arguments of keywords, checked: numbers, counts, texts, patterns.

Public: number, bounds, texts, keys, found_pattern, Schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from tinyllm.grammar.jsonschema.document import RefusedError, shown
from tinyllm.grammar.jsonschema.letters import alphabet_of
from tinyllm.grammar.jsonschema.numbers import exact
from tinyllm.grammar.jsonschema.strings import Strings, is_text

MAX_COUNT = 100_000
MAX_BITS = 10_000  # of a whole number

Schema = Mapping[str, Any]


def number(path: str, schema: Schema, keyword: str) -> Fraction:
    """The number that is the argument of a keyword, exactly."""
    value = schema[keyword]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(path, keyword, f"must be a number, not {shown(value)}")
    if isinstance(value, float) and value - value != 0:
        raise RefusedError(path, keyword, f"must be finite, not {value}")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise RefusedError(path, keyword, f"is too large: {shown(value)}")
    return exact(value)


def bounds(path: str, schema: Schema, least: str, most: str) -> tuple[int, int | None]:
    """The counts of a pair of keywords, 0 and None where one is absent."""
    low = _count(path, schema, least) if least in schema else 0
    return low, _count(path, schema, most) if most in schema else None


def _count(path: str, schema: Schema, keyword: str) -> int:
    value = number(path, schema, keyword)
    if value < 0 or value.denominator != 1:
        raise RefusedError(
            path, keyword, f"must be a count, not {shown(schema[keyword])}"
        )
    if value > MAX_COUNT:
        what = f"{shown(schema[keyword])} is more than {MAX_COUNT:,}"
        raise RefusedError(path, keyword, what)
    return int(value)


def found_pattern(path: str, pattern: object, keyword: str) -> Strings:
    """The strings in which a pattern is found, once it is known to be supported."""
    if not isinstance(pattern, str):
        raise RefusedError(
            path, keyword, f"must be a regular expression: {shown(pattern)}"
        )
    alphabet_of([pattern], [])  # raises what is not supported
    return Strings(patterns=frozenset((pattern,)))


def keys(path: str, schema: Schema, keyword: str) -> Iterator[str]:
    """The keys of the dict that is the argument of a keyword, none if it is absent."""
    found = schema.get(keyword, {})
    if not isinstance(found, Mapping):
        raise RefusedError(path, keyword, f"must be a dict, not {shown(found)}")
    yield from texts(path, list(found), keyword)


def texts(path: str, given: object, keyword: str) -> tuple[str, ...]:
    """The texts of a list that is the argument of a keyword."""
    if not isinstance(given, list):
        raise RefusedError(
            path, keyword, f"must be a list of texts, not {shown(given)}"
        )
    for text in given:
        if not is_text(text):
            raise RefusedError(
                path, keyword, f"holds {shown(text)}, which is no text of JSON"
            )
    return tuple(given)
