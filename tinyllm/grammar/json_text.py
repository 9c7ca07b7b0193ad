"""The texts of JSON values (RFC 8259) as expressions: compact, without white space.

Public: BOOLEAN, NULL, INTEGER, NUMBER, string, spelled, array, object_of.

An integer is written without fraction or exponent (1, not 1.0 or 1e0). A number has at
most 20 digits before the point and an exponent from -199 to 199 of at most three
digits, so that each one that can be written is finite in a double. A string may use
every escape of the RFC; raw control characters, ill-formed UTF-8 and lone surrogates,
also as escapes, are never legal. A given value or key has one spelling only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    Alternation,
    Expression,
    Repetition,
    Sequence,
    literal,
    optional,
)
from tinyllm.grammar.regex import parse
from tinyllm.grammar.utf8 import code_points, complement

_INTEGER = "-?(0|[1-9][0-9]*)"
_HEX = "[0-9a-fA-F]"
_ESCAPE = (
    rf'\\(["\\/bfnrt]|u([0-9abcefABCEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}|'
    rf"[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}))"
)
_QUOTE, _COMMA, _COLON = literal('"'), literal(","), literal(":")

BOOLEAN = parse("true|false")
NULL = literal("null")
INTEGER = parse(_INTEGER)
NUMBER = parse(
    r"-?(0|[1-9][0-9]{0,19})(\.[0-9]+)?([eE][-+]?([0-9]{1,2}|[01][0-9]{2}))?"
)
_RAW = code_points(complement([(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)]))
_CHARACTER = Alternation((_RAW, parse(_ESCAPE)))


def string(least: int = 0, most: int | None = None) -> Expression:
    """Any JSON string of `least` to `most` code points, an escape counting as one."""
    return Sequence((_QUOTE, Repetition(_CHARACTER, least, most), _QUOTE))


def spelled(value: object) -> Expression:
    """The one compact spelling of a JSON value, non-ASCII characters raw.

    TypeError or ValueError if it is not a JSON value.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if json.loads(text) != value:
        raise ValueError("it does not come back from JSON as it was")
    return literal(text)


def array(item: Expression, least: int, most: int | None) -> Expression:
    """An array of `least` to `most` items."""
    if most == 0:
        return literal("[]")
    more = Repetition(
        Sequence((_COMMA, item)),
        max(least - 1, 0),
        None if most is None else most - 1,
    )
    items: Expression = Sequence((item, more))
    items = optional(items) if least == 0 else items
    return Sequence((literal("["), items, literal("]")))


def object_of(members: Iterable[tuple[str, Expression, bool]]) -> Expression:
    """An object of members (key, value, required), in this order.

    Each step joins one member to the text of those before it. While no member has been
    required, that text may also be absent, and then its comma is too. The tree holds
    each member at most twice.
    """
    text: Expression | None = None
    absent = True
    for key, value, required in members:
        member = Sequence((spelled(key), _COLON, value))
        if text is None:
            text = member
        elif required:
            before = Sequence((text, _COMMA))
            text = Sequence((optional(before) if absent else before, member))
        else:
            more = Sequence((text, optional(Sequence((_COMMA, member)))))
            text = Alternation((more, member)) if absent else more
        absent = absent and not required
    body = text or EMPTY_TEXT
    return Sequence((literal("{"), optional(body) if absent else body, literal("}")))
