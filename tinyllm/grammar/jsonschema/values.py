"""Sets of JSON values: for each type a union of sets of that type.

Public: Values, Constants, ALL, NONE, TYPES, intersection, union, complement, is_empty,
constant, union_of_constants.

A keyword of JSON Schema speaks about values of one type and leaves the others alone. So
a schema is read as a union for each type; allOf intersects type by type, anyOf unites,
and `not` complements, also type by type (De Morgan).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.containers import (
    EVERY,
    NEVER,
    Arrays,
    Conjunction,
    KeyRules,
    Objects,
)
from tinyllm.grammar.jsonschema.document import shown
from tinyllm.grammar.jsonschema.numbers import Numbers, exact
from tinyllm.grammar.jsonschema.strings import Strings, is_text

MAX_OPTIONS = 2_000  # sets in the union of one type
MAX_BITS = 10_000  # of a whole number
_WORDS = {None: "null", True: "true", False: "false"}


@dataclass(frozen=True)
class Constants:
    """Some of null, true and false."""

    allowed: frozenset[str] = frozenset(_WORDS.values())

    def intersection(self, other: Constants) -> tuple[Constants, ...]:
        """Return the words in both sets."""
        shared = self.allowed & other.allowed
        return (Constants(shared),) if shared else ()

    def complement(self) -> tuple[Constants, ...]:
        """Return the words outside the set."""
        rest = Constants().allowed - self.allowed
        return (Constants(rest),) if rest else ()


class Values(NamedTuple):
    """A set of JSON values: all that are in one of the sets of their type."""

    words: tuple[Constants, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    strings: tuple[Strings, ...] = ()
    arrays: tuple[Arrays, ...] = ()
    objects: tuple[Objects, ...] = ()


NONE = Values()
ALL = Values((Constants(),), (Numbers(),), (Strings(),), (Arrays(),), (Objects(),))
TYPES = {
    "null": Values(words=(Constants(frozenset(("null",))),)),
    "boolean": Values(words=(Constants(frozenset(("true", "false"))),)),
    "integer": Values(numbers=(Numbers(integer=True),)),
    "number": Values(numbers=(Numbers(),)),
    "string": Values(strings=(Strings(),)),
    "array": Values(arrays=(Arrays(),)),
    "object": Values(objects=(Objects(),)),
}
_Union = tuple[Any, ...]  # sets of one type, each with intersection and complement


def intersection(first: Values, second: Values) -> Values:
    """Return the values in both sets."""
    return Values(*map(_intersection, first, second))


def union(options: Sequence[Values]) -> Values:
    """Return the values in any of the sets."""
    return Values(*map(_union, ALL, *options))


def complement(values: Values) -> Values:
    """Return the values outside the set; NoComplementError if they are not known."""
    return Values(*map(_complement, values, ALL))


def _intersection(first: _Union, second: _Union) -> _Union:
    if first == second:
        return first
    if len(first) * len(second) > 50 * MAX_OPTIONS:
        raise GrammarError("the union of alternatives has too many combinations")
    return _distinct(c for a in first for b in second for c in a.intersection(b))


def _union(every: _Union, *unions: _Union) -> _Union:
    sets = [some for one in unions for some in one]
    return every if every[0] in sets else _distinct(sets)


def _distinct(sets: Iterable[Any]) -> _Union:
    distinct = tuple(dict.fromkeys(sets))
    if len(distinct) > MAX_OPTIONS:
        raise GrammarError(
            f"there are {len(distinct):,} alternatives, more than {MAX_OPTIONS:,}"
        )
    return distinct


def _complement(sets: _Union, every: _Union) -> _Union:
    return reduce(_intersection, (some.complement() for some in sets), every)


def is_empty(
    values: Values, read: Callable[[Conjunction], Values], depth: int = 4
) -> bool:
    """Return whether a set is certainly empty, looking `depth` levels deep.

    `read` gives the values of a conjunction.
    """
    if values.words or values.numbers or values.strings:
        return False
    needed: list[Iterable[Conjunction]] = [
        (*arrays.prefix, arrays.rest)[: arrays.min_items] for arrays in values.arrays
    ]
    needed += [map(objects.of, objects.required) for objects in values.objects]
    return all(
        any(
            part == NEVER or (depth and is_empty(read(part), read, depth - 1))
            for part in dict.fromkeys(parts)
            if part != EVERY
        )
        for parts in needed
    )


def constant(
    value: object, path: str, part: Callable[[str | int, object], Conjunction]
) -> Values:
    """Return the set of one value of JSON (enum, const), which has one spelling.

    part(name, inside) names the place of an index or key inside the value. Raises
    GrammarError for what is not a value of JSON.
    """
    if value is None or isinstance(value, bool):
        return Values(words=(Constants(frozenset((_WORDS[value],))),))
    if isinstance(value, int | float) and _is_writable(value):
        return Values(numbers=(Numbers(values=frozenset((exact(value),))),))
    if isinstance(value, str) and is_text(value):
        return Values(strings=(Strings(values=frozenset((value,))),))
    if isinstance(value, list):
        items = tuple(part(i, item) for i, item in enumerate(value))
        return Values(arrays=(Arrays(items, NEVER, len(items), len(items)),))
    if isinstance(value, dict) and all(map(is_text, value)):
        members = tuple((key, part(key, inside)) for key, inside in value.items())
        closed = KeyRules(additional=NEVER)
        return Values(objects=(Objects(members, tuple(value), (closed,)),))
    raise GrammarError(f"{path} holds {shown(value)}, which cannot be written as JSON")


def _is_writable(number: int | float) -> bool:
    if isinstance(number, int):
        return number.bit_length() < MAX_BITS
    return math.isfinite(number)


def union_of_constants(options: list[Values]) -> Values:
    """Return the union of sets of constants, the scalars of one type in one set."""
    numbers = [v for o in options for n in o.numbers for v in n.values or ()]
    strings = [v for o in options for s in o.strings for v in s.values or ()]
    words = [v for o in options for w in o.words for v in w.allowed]
    return Values(
        (Constants(frozenset(words)),) if words else (),
        (Numbers(values=frozenset(numbers)),) if numbers else (),
        (Strings(values=frozenset(strings)),) if strings else (),
        tuple(some for option in options for some in option.arrays),
        tuple(some for option in options for some in option.objects),
    )
