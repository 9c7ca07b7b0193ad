"""The keywords that speak about types, numbers and strings, as sets of values.

Public: of_type, numbers, lengths, pattern, of_format.
"""

from __future__ import annotations

from dataclasses import replace

from tinyllm.grammar.jsonschema import values
from tinyllm.grammar.jsonschema.checks import Schema, bounds, found_pattern, number
from tinyllm.grammar.jsonschema.document import RefusedError, shown
from tinyllm.grammar.jsonschema.formats import FORMATS
from tinyllm.grammar.jsonschema.numbers import Numbers
from tinyllm.grammar.jsonschema.strings import Strings
from tinyllm.grammar.jsonschema.values import ALL, Values

NUMBER_KEYWORDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
NUMBER_KEYWORDS += ["multipleOf"]


def of_type(path: str, schema: Schema) -> Values:
    """type: one or several."""
    given = schema["type"]
    names = given if isinstance(given, list) else [given]
    if not names:
        raise RefusedError(path, "type", "is an empty list, which allows nothing")
    for name in names:
        if not isinstance(name, str) or name not in values.TYPES:
            known = ", ".join(values.TYPES)
            raise RefusedError(path, "type", f"{shown(name)} is none of {known}")
    return values.join([values.TYPES[name] for name in names])


def numbers(path: str, schema: Schema) -> Values:
    """minimum, maximum, their exclusive forms, and multipleOf."""
    found = Numbers()
    for keyword in NUMBER_KEYWORDS:
        if keyword not in schema:
            continue
        value = number(path, schema, keyword)
        if keyword == "multipleOf":
            if value <= 0:
                raise RefusedError(path, keyword, "must be above 0")
            more = Numbers(multiple=value)
        elif keyword in ("minimum", "exclusiveMinimum"):
            more = Numbers(low=(value, keyword != "minimum"))
        else:
            more = Numbers(high=(value, keyword != "maximum"))
        met = found.meet(more)
        if not met:
            return replace(ALL, numbers=())
        found = met[0]
    return replace(ALL, numbers=(found,))


def lengths(path: str, schema: Schema) -> Values:
    """minLength and maxLength, in code points."""
    least, most = bounds(path, schema, "minLength", "maxLength")
    return replace(ALL, strings=Strings(least, None).meet(Strings(most=most)))


def pattern(path: str, schema: Schema) -> Values:
    """pattern: found somewhere in the string."""
    return replace(ALL, strings=(found_pattern(path, schema["pattern"], "pattern"),))


def of_format(path: str, schema: Schema) -> Values:
    """format: those of formats.FORMATS."""
    name = schema["format"]
    if not isinstance(name, str) or name not in FORMATS:
        raise RefusedError(
            path, "format", f"{shown(name)} is none of {', '.join(FORMATS)}"
        )
    return replace(ALL, strings=(Strings(patterns=frozenset((FORMATS[name],))),))
