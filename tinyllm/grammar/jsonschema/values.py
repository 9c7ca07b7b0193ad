"""Sets of JSON values: for each type a union of sets of that type.

Public: Values, Words, ALL, NONE, meet, join, complement, TYPES.

A keyword of JSON Schema speaks about values of one type and leaves the others alone. So
a schema is read as a union for each type; allOf intersects type by type, anyOf unites,
and `not` complements, also type by type (De Morgan).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.containers import Arrays, Objects
from tinyllm.grammar.jsonschema.numbers import Numbers
from tinyllm.grammar.jsonschema.strings import Strings

MAX_OPTIONS = 2_000  # sets in the union of one type
_WORDS = frozenset(("null", "true", "false"))


@dataclass(frozen=True)
class Words:
    """Some of null, true and false."""

    allowed: frozenset[str] = _WORDS

    def meet(self, other: Words) -> tuple[Words, ...]:
        """The words in both sets."""
        shared = self.allowed & other.allowed
        return (Words(shared),) if shared else ()

    def complement(self) -> tuple[Words, ...]:
        """The words outside the set."""
        rest = _WORDS - self.allowed
        return (Words(rest),) if rest else ()


class _Set(Protocol):
    def meet(self, other: Self, /) -> tuple[Self, ...]: ...
    def complement(self) -> tuple[Self, ...]: ...


S = TypeVar("S", bound=_Set)


@dataclass(frozen=True)
class Values:
    """A set of JSON values: all that are in one of the sets of their type."""

    words: tuple[Words, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Strings, ...] = ()
    arrays: tuple[Arrays, ...] = ()
    objects: tuple[Objects, ...] = ()


NONE = Values()
ALL = Values((Words(),), (Numbers(),), (Strings(),), (Arrays(),), (Objects(),))
TYPES = {
    "null": Values(words=(Words(frozenset(("null",))),)),
    "boolean": Values(words=(Words(frozenset(("true", "false"))),)),
    "integer": Values(numbers=(Numbers(integer=True),)),
    "number": Values(numbers=(Numbers(),)),
    "string": Values(strings=(Strings(),)),
    "array": Values(arrays=(Arrays(),)),
    "object": Values(objects=(Objects(),)),
}


def meet(first: Values, second: Values) -> Values:
    """The values in both sets."""
    return Values(
        _meet(first.words, second.words),
        _meet(first.numbers, second.numbers),
        _meet(first.strings, second.strings),
        _meet(first.arrays, second.arrays),
        _meet(first.objects, second.objects),
    )


def join(options: Seq[Values]) -> Values:
    """The values in any of the sets."""
    return Values(
        _union([held for option in options for held in option.words], Words()),
        _union([held for option in options for held in option.numbers], Numbers()),
        _union([held for option in options for held in option.strings], Strings()),
        _union([held for option in options for held in option.arrays], Arrays()),
        _union([held for option in options for held in option.objects], Objects()),
    )


def complement(values: Values) -> Values:
    """The values outside the set; NoComplementError if they cannot be told."""
    return Values(
        _complement(values.words, Words()),
        _complement(values.numbers, Numbers()),
        _complement(values.strings, Strings()),
        _complement(values.arrays, Arrays()),
        _complement(values.objects, Objects()),
    )


def _meet(first: tuple[S, ...], second: tuple[S, ...]) -> tuple[S, ...]:
    if first == second:
        return first
    if len(first) * len(second) > 50 * MAX_OPTIONS:
        raise GrammarError("the union of alternatives has too many combinations")
    return _union([met for a in first for b in second for met in a.meet(b)], None)


def _union(sets: list[S], every: S | None) -> tuple[S, ...]:
    if every is not None and every in sets:
        return (every,)
    distinct = tuple(dict.fromkeys(sets))
    if len(distinct) > MAX_OPTIONS:
        raise GrammarError(
            f"there are {len(distinct):,} alternatives, more than {MAX_OPTIONS:,}"
        )
    return distinct


def _complement(sets: tuple[S, ...], every: S) -> tuple[S, ...]:
    outside: tuple[S, ...] = (every,)
    for held in sets:
        outside = _meet(outside, held.complement())
    return outside
