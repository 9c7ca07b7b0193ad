"""The texts of JSON values (RFC 8259) as expressions.

Public: QUOTE, CHARACTER, INTEGER, NUMBER, Style, array, object_of.

An integer is written without fraction or exponent (1, not 1.0 or 1e0). A number has at
most 20 digits before the point and an exponent from -199 to 199 of at most three
digits, so that each one that can be written is finite in a double. A string may use
every escape of the RFC; raw control characters, ill-formed UTF-8 and lone surrogates,
also as escapes, are never legal. Texts are compact, or have at most one space after a
comma and a colon (Style).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    NOTHING,
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
INTEGER = parse("-?(0|[1-9][0-9]*)")
NUMBER = parse(
    r"-?(0|[1-9][0-9]{0,19})(\.[0-9]+)?([eE][-+]?([0-9]{1,2}|[01][0-9]{2}))?"
)


@dataclass(frozen=True)
class Style:
    """What stands between the values: compact, or with at most one space."""

    comma: Expression
    colon: Expression

    @classmethod
    def of(cls, spaces: bool) -> Style:
        """The compact style, or that with spaces."""
        behind = " ?" if spaces else ""
        return cls(parse("," + behind), parse(":" + behind))


def array(
    prefix: Sequence[Expression],
    rest: Expression,
    least: int,
    most: int | None,
    style: Style,
) -> Expression:
    """An array of `least` to `most` items: those of the prefix, then the rest."""
    first = len(prefix)
    bound = None if most is None else max(most - first, 0)
    needed, tail = max(least - first, 0), Concatenation((style.comma, rest))
    if most is not None:
        prefix = prefix[:most]
    if bound is not None and needed > bound:
        return NOTHING
    items = _following(tail, needed, bound) if prefix else _items(tail, needed, bound)
    for i in range(len(prefix) - 1, -1, -1):
        before = (style.comma, prefix[i]) if i else (prefix[i],)
        items = Concatenation((*before, items))
        items = items if i < least else optional(items)
    return Concatenation((literal("["), items, literal("]")))


def _following(tail: Concatenation, least: int, most: int | None) -> Expression:
    """`least` to `most` items, each with its comma before it."""
    return EMPTY_TEXT if most == 0 else Repetition(tail, least, most)


def _items(tail: Concatenation, least: int, most: int | None) -> Expression:
    """`least` to `most` items, with commas between them."""
    if most == 0:
        return EMPTY_TEXT
    more = _following(tail, max(least - 1, 0), None if most is None else most - 1)
    items = Concatenation((tail.parts[1], more))
    return items if least else optional(items)


@dataclass(frozen=True)
class Member:
    """A member of an object with its declared key."""

    key: str
    value: Expression
    required: bool


def object_of(
    members: Sequence[Member],
    extra: Expression,
    extras: tuple[int, int | None],
    style: Style,
) -> Expression:
    """An object of the members, in this order, and then of extra ones.

    `extra` is one extra member, key and value, and `extras` how many of them. Each step
    joins one member to the text of those before it. While no member has been required,
    that text may also be absent, and then its comma is too. The tree holds each member
    at most twice.
    """
    text: Expression | None = None
    absent = True
    tail = Concatenation((style.comma, extra))
    parts = [
        (_member(member.key, member.value, style), member.required)
        for member in members
    ]
    if extras[1] != 0:
        parts.append((_items(tail, max(extras[0], 1), extras[1]), extras[0] > 0))
    for member, required in parts:
        if text is None:
            text = member
        elif required:
            before = Concatenation((text, style.comma))
            text = Concatenation((optional(before) if absent else before, member))
        else:
            more = Concatenation((text, optional(Concatenation((style.comma, member)))))
            text = Alternation((more, member)) if absent else more
        absent = absent and not required
    body = EMPTY_TEXT if text is None else optional(text) if absent else text
    return Concatenation((literal("{"), body, literal("}")))


def _member(key: str, value: Expression, style: Style) -> Expression:
    return Concatenation(
        (literal(json.dumps(key, ensure_ascii=False)), style.colon, value)
    )
