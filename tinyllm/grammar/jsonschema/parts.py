"""The parts of a schema: which there are, which recur, which some value fulfils.

Public: Parts, find, name_of, named, needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import Expression
from tinyllm.grammar.jsonschema.containers import EVERY, Arrays, Both, Objects
from tinyllm.grammar.jsonschema.counts import without_counts
from tinyllm.grammar.jsonschema.document import RefusedError
from tinyllm.grammar.jsonschema.keywords import Reader
from tinyllm.grammar.jsonschema.scalars import Scalars
from tinyllm.grammar.jsonschema.values import Values

MAX_PARTS = 3_000  # conjunctions of places


def name_of(part: Both) -> str:
    """The name of a rule: the places that the value must fulfil."""
    if part == EVERY:
        return "any value"
    return " and ".join(("" if it.allowed else "not ") + it.path for it in part)


@contextmanager
def named(part: Both) -> Iterator[None]:
    """Give an error the place at which it arose."""
    try:
        yield
    except RefusedError:
        raise
    except GrammarError as error:
        raise RefusedError(name_of(part), "", str(error)) from error


@dataclass
class Parts:
    """Each part, and what is known of it.

    `order` has children before their parents, but for a part inside itself: each circle
    has one in `recursive`.
    """

    reader: Reader
    scalars: Scalars
    values: dict[Both, Values] = field(default_factory=dict)
    children: dict[Both, tuple[Both, ...]] = field(default_factory=dict)
    order: list[Both] = field(default_factory=list)
    recursive: set[Both] = field(default_factory=set)
    texts: dict[Both, list[Expression]] = field(default_factory=dict)  # of scalars
    alive: set[Both] = field(default_factory=set)

    def open(self, part: Both) -> Iterator[Both]:
        """Read a part, and give its children."""
        with named(part):
            found = self._tidied(self.reader.values(part), part)
        self.values[part] = found
        if len(self.values) > MAX_PARTS:
            what = f"the schema has more than {MAX_PARTS:,} parts"
            raise RefusedError(name_of(part), "", what)
        children: dict[Both, None] = {}
        for arrays in found.arrays:
            children |= dict.fromkeys((*arrays.prefix, arrays.rest))
        for objects in found.objects:
            children |= dict.fromkeys(value for _, value in objects.properties)
            children |= dict.fromkeys(value for _, value in objects.extras())
        self.children[part] = tuple(children)
        return iter(children)

    def _tidied(self, found: Values, part: Both) -> Values:
        """The same values, each object with all its keys and without counts."""
        objects = [
            single
            for held in found.objects
            for single in without_counts(held.declared(), name_of(part))
        ]
        return replace(found, objects=tuple(dict.fromkeys(objects)))

    def drop_empty(self) -> None:
        """Find the parts that some value fulfils (a least fixed point)."""
        for part in self.order:
            with named(part):
                found = self.scalars.of(self.values[part], name_of(part))
            self.texts[part] = found
        changed = True
        while changed:
            changed = False
            for part in self.order:
                if part not in self.alive and self._is_alive(part):
                    self.alive.add(part)
                    changed = True

    def _is_alive(self, part: Both) -> bool:
        found = self.values[part]
        return (
            bool(self.texts[part])
            or any(
                all(item in self.alive for item in needed(held))
                for held in found.arrays
            )
            or any(self.has_object(held) for held in found.objects)
        )

    def has_object(self, held: Objects) -> bool:
        """Whether some object is in a set."""
        required = all(held.of(key) in self.alive for key in held.required)
        extra = not held.least or any(value in self.alive for _, value in held.extras())
        return required and extra


def find(reader: Reader, start: Both, scalars: Scalars) -> Parts:
    """All parts of a schema, read depth first.

    RefusedError names the keyword and place of what cannot be enforced.
    """
    parts = Parts(reader, scalars)
    open_parts: set[Both] = set()
    work = [(start, parts.open(start))]
    open_parts.add(start)
    while work:
        part, inside = work[-1]
        child = next(inside, None)
        if child is None:
            work.pop()
            open_parts.discard(part)
            parts.order.append(part)
        elif child in open_parts:
            parts.recursive.add(child)
        elif child not in parts.values:
            open_parts.add(child)
            work.append((child, parts.open(child)))
    parts.drop_empty()
    return parts


def needed(held: Arrays) -> tuple[Both, ...]:
    """The items that every array of a set has."""
    rest = (held.rest,) if held.least > len(held.prefix) else ()
    return (*held.prefix[: held.least], *rest)
