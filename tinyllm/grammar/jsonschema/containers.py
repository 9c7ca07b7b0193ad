"""Sets of arrays and of objects, whose parts are named by places in the schema.

Public: Literal, Both, EVERY, NEVER, both, Arrays, Objects, Side.

What an item or member must be is a conjunction of places of the schema: all of them
must allow it (or forbid it, if the place is negated). Places are only names here; they
are read when they are needed, so that a recursive schema comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

from tinyllm.grammar.jsonschema.strings import NoComplementError, Strings


class Literal(NamedTuple):
    """A place of the schema, which must allow (or must forbid) the value."""

    path: str
    allowed: bool = True
    given: bool = False  # the place holds a value of enum or const, not a schema

    def negated(self) -> Literal:
        """The literal that allows all other values."""
        return self._replace(allowed=not self.allowed)


Both = tuple[Literal, ...]  # sorted: all of them hold
EVERY: Both = ()
NEVER: Both = (Literal("false"),)


def both(*conjunctions: Both) -> Both:
    """What fulfils every one of several conjunctions."""
    literals = {literal for held in conjunctions for literal in held}
    if any(literal.negated() in literals for literal in literals):
        return NEVER
    return NEVER if NEVER[0] in literals else tuple(sorted(literals))


@dataclass(frozen=True)
class Arrays:
    """All arrays whose items and length fulfil every field."""

    prefix: tuple[Both, ...] = ()
    rest: Both = EVERY
    least: int = 0
    most: int | None = None

    def meet(self, other: Arrays) -> tuple[Arrays, ...]:
        """The arrays in both sets, () if there is certainly none."""
        pairs = [
            (self.rest if mine is None else mine, other.rest if its is None else its)
            for mine, its in zip_longest(self.prefix, other.prefix)
        ]
        prefix = tuple(both(mine, its) for mine, its in pairs)
        mosts = [most for most in (self.most, other.most) if most is not None]
        mosts += [i for i, item in enumerate(prefix) if item == NEVER]
        rest = both(self.rest, other.rest)
        mosts += [len(prefix)] if rest == NEVER else []
        least, most = max(self.least, other.least), min(mosts) if mosts else None
        if most is not None and least > most:
            return ()
        return (Arrays(prefix[:most], rest, least, most),)

    def complement(self) -> tuple[Arrays, ...]:
        """All arrays outside the set: too short, too long, or with a wrong item."""
        if self.rest not in (EVERY, NEVER):
            raise NoComplementError("items")
        most = self.most
        if self.rest == NEVER:
            most = len(self.prefix) if most is None else min(most, len(self.prefix))
        outside = [Arrays(most=self.least - 1)] if self.least else []
        outside += [Arrays(least=most + 1)] if most is not None else []
        for i, item in enumerate(self.prefix[:most]):
            for literal in item:
                wrong = (EVERY,) * i + ((literal.negated(),),)
                outside.append(Arrays(wrong, least=i + 1))
        return tuple(outside)


@dataclass(frozen=True)
class Side:
    """What one schema says of the keys that are not declared.

    A key that is in the strings of some test must have a value of that test; one that
    is in none must have a value of `additional`.
    """

    tests: tuple[tuple[tuple[Strings, ...], Both], ...] = ()
    additional: Both = EVERY

    def of(self, key: str) -> Both:
        """What the value of a key must be."""
        found = [
            value for strings, value in self.tests if any(s.holds(key) for s in strings)
        ]
        return both(*found) if found else self.additional


@dataclass(frozen=True)
class Objects:
    """All objects whose members fulfil every field.

    `properties` holds all that is said of a declared key; the sides speak about the
    other keys only.
    """

    properties: tuple[tuple[str, Both], ...] = ()
    required: tuple[str, ...] = ()
    sides: tuple[Side, ...] = ()
    least: int = 0
    most: int | None = None

    def of(self, key: str) -> Both:
        """What the value of a key must be, declared or not."""
        declared = dict(self.properties)
        if key in declared:
            return declared[key]
        return both(*(side.of(key) for side in self.sides))

    def meet(self, other: Objects) -> tuple[Objects, ...]:
        """The objects in both sets, () if there is certainly none."""
        keys = dict.fromkeys(key for s in (self, other) for key, _ in s.properties)
        mine, its = dict(self.properties), dict(other.properties)
        properties = {
            key: both(
                mine[key] if key in mine else self.of(key),
                its[key] if key in its else other.of(key),
            )
            for key in keys
        }
        mosts = [most for most in (self.most, other.most) if most is not None]
        met = Objects(
            tuple(properties.items()),
            tuple(dict.fromkeys(self.required + other.required)),
            tuple(dict.fromkeys(self.sides + other.sides)),
            max(self.least, other.least),
            min(mosts) if mosts else None,
        )
        needed = max(met.least, len(met.required))
        if met.most is not None and needed > met.most:
            return ()
        missing = any(properties.get(key) == NEVER for key in met.required)
        return () if missing else (met,)

    def complement(self) -> tuple[Objects, ...]:
        """All objects outside the set: a member is missing, wrong or one too many."""
        if any(side.tests or side.additional for side in self.sides):
            raise NoComplementError(
                "additionalProperties, patternProperties, propertyNames"
            )
        outside = [Objects(properties=((key, NEVER),)) for key in self.required]
        for key, value in self.properties:
            outside += [
                Objects(((key, (literal.negated(),)),), (key,)) for literal in value
            ]
        outside += [Objects(most=self.least - 1)] if self.least else []
        outside += [Objects(least=self.most + 1)] if self.most is not None else []
        return tuple(outside)

    def declared(self) -> Objects:
        """The same set, with every required key among the properties."""
        known = dict(self.properties)
        more = ((key, self.of(key)) for key in self.required if key not in known)
        return replace(self, properties=(*self.properties, *more))

    def extras(self) -> Iterator[tuple[tuple[Strings, ...], Both]]:
        """The classes of keys that are not declared, and the values of each.

        The classes do not overlap: one for each choice of tests that a key fulfils.
        """
        free = Strings(excluded=frozenset(key for key, _ in self.properties))
        classes: list[tuple[tuple[Strings, ...], Both]] = [((free,), EVERY)]
        for side in self.sides:
            classes = [
                (keys, both(value, more))
                for held, value in classes
                for keys, more in _split(held, side)
                if keys
            ]
        yield from (found for found in classes if found[1] != NEVER)


def _split(
    keys: tuple[Strings, ...], side: Side
) -> Iterator[tuple[tuple[Strings, ...], Both]]:
    """The keys by which tests of a side they fulfil, and the value that follows."""
    classes: list[tuple[tuple[Strings, ...], tuple[Both, ...]]] = [(keys, ())]
    for strings, value in side.tests:
        outside = complement_of(strings)
        classes = [
            new
            for held, values in classes
            for new in (
                (meet_of(held, strings), (*values, value)),
                (meet_of(held, outside), values),
            )
        ]
    for held, values in classes:
        yield held, both(*values) if values else side.additional


def meet_of(
    first: tuple[Strings, ...], second: tuple[Strings, ...]
) -> tuple[Strings, ...]:
    """The strings in both unions."""
    return tuple(dict.fromkeys(s for a in first for b in second for s in a.meet(b)))


def complement_of(strings: tuple[Strings, ...]) -> tuple[Strings, ...]:
    """The strings in no set of a union."""
    outside: tuple[Strings, ...] = (Strings(),)
    for held in strings:
        outside = meet_of(outside, held.complement())
    return outside
