"""The texts of JSON values (RFC 8259) as expressions.

Public: QUOTE, CHARACTER, STRING, INTEGER, NUMBER, Style, COMPACT, SPACED, items, array,
member, object_of.

An integer is written without fraction or exponent (1, not 1.0 or 1e0). A number has at
most 20 digits before the point and an exponent from -199 to 199 of at most three
digits, so that each one that can be written is finite in a double. A string may use
every escape of the RFC; raw control characters, ill-formed UTF-8 and lone surrogates,
also as escapes, are never legal. Texts are compact, or have at most one space after a
comma and a colon (Style).

Before: grammar.explain. Next: grammar.calls.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    Alternation,
    Concatenation,
    Expression,
    Repetition,
    literal,
    optional,
)
from tinyllm.grammar.regex import parse

QUOTE = literal('"')
_HEX = "[0-9A-Fa-f]"
# The code units D800 to DFFF are surrogates: only a pair of them is a character, one
# of D800 to DBFF and one of DC00 to DFFF. All escapes share their last two digits.
_PAIR = rf"[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]"
CHARACTER = parse(
    r'[^"\\\x00-\x1f]'  # itself, unless it is a quote, a backslash or a control
    r'|\\["\\/bfnrt]'  # as a short escape
    rf"|\\u([0-9A-CEFa-cef]{_HEX}|[Dd][0-7]|{_PAIR}){_HEX}{{2}}"  # as \uXXXX
)
STRING = Concatenation((QUOTE, Repetition(CHARACTER), QUOTE))
INTEGER = parse("-?(0|[1-9][0-9]*)")
NUMBER = parse(
    r"-?(0|[1-9][0-9]{0,19})(\.[0-9]+)?([eE][-+]?([0-9]{1,2}|[01][0-9]{2}))?"
)


@dataclass(frozen=True)
class Style:
    """The texts between two values, and between a key and its value."""

    comma: Expression
    colon: Expression


COMPACT = Style(literal(","), literal(":"))
SPACED = Style(parse(", ?"), parse(": ?"))


def items(item: Expression, low: int, high: int | None, style: Style) -> Expression:
    """Return `low` to `high` items with commas between them; None is no limit."""
    if high == 0:
        return EMPTY_TEXT
    more = Concatenation((style.comma, item))
    rest = Repetition(more, max(low - 1, 0), None if high is None else high - 1)
    some = Concatenation((item, rest))
    return some if low else optional(some)


def array(item: Expression, low: int, high: int | None, style: Style) -> Expression:
    """Return an array of `low` to `high` items; None is no limit."""
    return Concatenation((literal("["), items(item, low, high, style), literal("]")))


def member(key: str, value: Expression, style: Style) -> Expression:
    """Return a member of an object, its key in the one spelling of json.dumps."""
    written = literal(json.dumps(key, ensure_ascii=False))
    return Concatenation((written, style.colon, value))


def object_of(members: Sequence[tuple[Expression, bool]], style: Style) -> Expression:
    """Return an object of members, in this order; the bool says which must be there.

    Each step joins one member to the text of those before it. While none of these has
    to be there, that text may also be absent, and then its comma is, too. So the tree
    has each member at most twice.
    """
    text: Expression | None = None
    absent = True  # may all of the text be absent?
    for one, required in members:
        if text is None:
            text = one
        elif required:
            before = Concatenation((text, style.comma))
            text = Concatenation((optional(before) if absent else before, one))
        else:
            more = Concatenation((text, optional(Concatenation((style.comma, one)))))
            text = Alternation((more, one)) if absent else more
        absent = absent and not required
    body = EMPTY_TEXT if text is None else optional(text) if absent else text
    return Concatenation((literal("{"), body, literal("}")))
