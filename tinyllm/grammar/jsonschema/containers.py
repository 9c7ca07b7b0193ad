"""Sets of arrays and of objects, whose parts are named by places in the schema.

Public: PathTerm, Conjunction, EVERY, NEVER, conjunction, Arrays, Objects, KeyRules.

What an item or member must be is a conjunction of places of the schema: each of them
must allow it (or forbid it, if the place is negated). Places are only names here; they
are read when they are needed, so that a recursive schema comes to an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, zip_longest
from typing import NamedTuple

from tinyllm.grammar.jsonschema.document import RefusedError
from tinyllm.grammar.jsonschema.strings import (
    NoComplementError,
    Strings,
    complement_of,
    intersection_of,
    smallest,
)

MAX_SUBSETS = 6  # optional members whose number is limited


class PathTerm(NamedTuple):
    """A place of the schema, which must allow the value, or must forbid it."""

    path: str
    allowed: bool = True
    constant: bool = False  # the place has a value of enum or const, not a schema

    def negated(self) -> PathTerm:
        """Return the term that allows all other values."""
        return self._replace(allowed=not self.allowed)


Conjunction = tuple[PathTerm, ...]  # sorted; a value must fulfil every term
EVERY: Conjunction = ()
NEVER: Conjunction = (PathTerm("false"),)
Items = tuple[Conjunction, ...]
KeyClass = tuple[
    tuple[Strings, ...], Conjunction
]  # keys, and what their values must be


def conjunction(*parts: Conjunction) -> Conjunction:
    """Return the terms of several conjunctions, NEVER if two contradict each other."""
    terms = {term for part in parts for term in part}
    if NEVER[0] in terms or any(term.negated() in terms for term in terms):
        return NEVER
    return tuple(sorted(terms))


@dataclass(frozen=True)
class Arrays:
    """All arrays whose items and length fulfil every field."""

    prefix: Items = ()
    rest: Conjunction = EVERY
    min_items: int = 0
    max_items: int | None = None

    def intersection(self, other: Arrays) -> tuple[Arrays, ...]:
        """Return the arrays in both sets, () if there is certainly none."""
        pairs = [
            (self.rest if mine is None else mine, other.rest if its is None else its)
            for mine, its in zip_longest(self.prefix, other.prefix)
        ]
        prefix = tuple(conjunction(mine, its) for mine, its in pairs)
        rest = conjunction(self.rest, other.rest)
        dead = [i for i, item in enumerate((*prefix, rest)) if item == NEVER]
        low = max(self.min_items, other.min_items)
        high = smallest(self.max_items, other.max_items, *dead)
        if high is not None and low > high:
            return ()
        return (Arrays(prefix[:high], rest, low, high),)

    def complement(self) -> tuple[Arrays, ...]:
        """Return all other arrays: too short, too long, or with a wrong item."""
        if self.rest not in (EVERY, NEVER):
            raise NoComplementError("items")
        ends = [len(self.prefix)] if self.rest == NEVER else []
        high = smallest(self.max_items, *ends)
        outside = [Arrays(max_items=self.min_items - 1)] if self.min_items else []
        outside += [Arrays(min_items=high + 1)] if high is not None else []
        for i, item in enumerate(self.prefix[:high]):
            for term in item:
                wrong = (EVERY,) * i + ((term.negated(),),)
                outside.append(Arrays(wrong, min_items=i + 1))
        return tuple(outside)


@dataclass(frozen=True)
class KeyRules:
    """What one schema says of the keys that are not declared.

    A key that is in the strings of some test must have a value of that test; one that
    is in none must have a value of `additional`.
    """

    tests: tuple[tuple[tuple[Strings, ...], Conjunction], ...] = ()
    additional: Conjunction = EVERY

    def of(self, key: str) -> Conjunction:
        """Return what the value of a key must be."""
        found = [v for keys, v in self.tests if any(s.contains(key) for s in keys)]
        return conjunction(*found) if found else self.additional

    def split(self, keys: tuple[Strings, ...]) -> Iterator[KeyClass]:
        """Return some keys by which tests they fulfil, and what follows from those."""
        classes: list[tuple[tuple[Strings, ...], Items]] = [(keys, ())]
        for strings, value in self.tests:
            outside = complement_of(strings)
            classes = [
                new
                for keys, values in classes
                for new in (
                    (intersection_of(keys, strings), (*values, value)),
                    (intersection_of(keys, outside), values),
                )
            ]
        for keys, values in classes:
            yield keys, conjunction(*values) if values else self.additional


@dataclass(frozen=True)
class Objects:
    """All objects whose members fulfil every field.

    `properties` has all that is said of a declared key; the rules speak about the other
    keys only.
    """

    properties: tuple[tuple[str, Conjunction], ...] = ()
    required: tuple[str, ...] = ()
    rules: tuple[KeyRules, ...] = ()
    min_members: int = 0
    max_members: int | None = None

    def of(self, key: str) -> Conjunction:
        """Return what the value of a key must be, declared or not."""
        declared = dict(self.properties)
        if key in declared:
            return declared[key]
        return conjunction(*(rules.of(key) for rules in self.rules))

    def intersection(self, other: Objects) -> tuple[Objects, ...]:
        """Return the objects in both sets, () if there is certainly none."""
        keys = dict.fromkeys(key for s in (self, other) for key, _ in s.properties)
        properties = {key: conjunction(self.of(key), other.of(key)) for key in keys}
        found = Objects(
            tuple(properties.items()),
            tuple(dict.fromkeys(self.required + other.required)),
            tuple(dict.fromkeys(self.rules + other.rules)),
            max(self.min_members, other.min_members),
            smallest(self.max_members, other.max_members),
        )
        low = max(found.min_members, len(found.required))
        if found.max_members is not None and low > found.max_members:
            return ()
        missing = any(properties.get(key) == NEVER for key in found.required)
        return () if missing else (found,)

    def complement(self) -> tuple[Objects, ...]:
        """Return all other objects: a member is missing, wrong or one too many."""
        if any(rules.tests or rules.additional for rules in self.rules):
            raise NoComplementError(
                "additionalProperties, patternProperties, propertyNames"
            )
        outside = [Objects(properties=((key, NEVER),)) for key in self.required]
        outside += [
            Objects(((key, (term.negated(),)),), (key,))
            for key, value in self.properties
            for term in value
        ]
        low, high = self.min_members, self.max_members
        outside += [Objects(max_members=low - 1)] if low else []
        outside += [Objects(min_members=high + 1)] if high is not None else []
        return tuple(outside)

    def declared(self) -> Objects:
        """Return the same set, with every required key among the properties."""
        known = dict(self.properties)
        more = ((key, self.of(key)) for key in self.required if key not in known)
        return replace(self, properties=(*self.properties, *more))

    def extras(self) -> Iterator[KeyClass]:
        """Return the classes of keys that are not declared, and the values of each.

        The classes do not overlap: one for each choice of tests that a key fulfils.
        """
        free = Strings(excluded=frozenset(key for key, _ in self.properties))
        classes: list[KeyClass] = [((free,), EVERY)]
        for rules in self.rules:
            classes = [
                (keys, conjunction(value, more))
                for undivided, value in classes
                for keys, more in rules.split(undivided)
                if keys
            ]
        yield from (found for found in classes if found[1] != NEVER)

    def without_counts(self, name: str) -> list[Objects]:
        """Return the same objects as sets whose counts speak of extra keys only.

        An extra key may be written twice, and then counts once: so of extra keys, at
        least one can be asked for, but not two. RefusedError names the place `name`.
        """
        required = [key for key, _ in self.properties if key in self.required]
        optional = [key for key, _ in self.properties if key not in self.required]
        low, high, n_required = self.min_members, self.max_members, len(required)
        free = any(True for _ in self.extras())
        ample = high is None or (not free and high >= n_required + len(optional))
        if low <= n_required and ample:
            return [replace(self, min_members=0, max_members=None)]
        if len(optional) > MAX_SUBSETS:
            what = f"cannot be counted over more than {MAX_SUBSETS} optional properties"
            keyword = "maxProperties" if low <= n_required else "minProperties"
            raise RefusedError(name, keyword, what)
        found = []
        for size in range(len(optional) + 1):
            n_extras = max(low - n_required - size, 0)
            limit = None if high is None else high - n_required - size
            if (limit is not None and limit < n_extras) or (n_extras and not free):
                continue
            if n_extras > 1:
                what = "above 1 cannot be counted where extra keys may repeat"
                raise RefusedError(name, "minProperties", what)
            for chosen in combinations(optional, size):
                found.append(self._exactly({*required, *chosen}, n_extras, limit))
        return found

    def _exactly(self, keys: set[str], low: int, high: int | None) -> Objects:
        """Return the objects whose declared keys are just these."""
        properties = tuple((k, v if k in keys else NEVER) for k, v in self.properties)
        required = tuple(key for key, _ in self.properties if key in keys)
        return Objects(properties, required, self.rules, low, high)
