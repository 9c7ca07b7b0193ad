"""JSON Schema, read into rules: what is not enforced is refused.

Public: parse.

Each part of a value is a conjunction of places of the schema (containers.Both). All of
them are found first; then those that no value fulfils are left out; then each becomes
an expression, inside out. What recurs, is large or deep, and each string that is not
given, becomes a rule of its own; the rest is written in place.

What is written is always valid. Some valid values cannot be written:
- keys in another order than declared ones in the order of the schema, then required
  ones that are not declared, then all others; a declared key twice;
- 1.0 or 1e0 for an integer, a multiple of one or a given number; exponents, and more
  than 15 digits with a fraction, for a number with bounds;
- a given value or an extra key in other than its canonical spelling;
- strings outside the subsets of the formats (formats), which are asserted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tinyllm.grammar import json_text
from tinyllm.grammar.expression import (
    NOTHING,
    Alternation,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    check_size,
)
from tinyllm.grammar.json_text import Member, Style
from tinyllm.grammar.jsonschema.containers import Arrays, Both, Objects
from tinyllm.grammar.jsonschema.keywords import Reader
from tinyllm.grammar.jsonschema.parts import Parts, find, name_of, named, needed
from tinyllm.grammar.jsonschema.scalars import Scalars, one_of

LARGE = 2_000  # automaton nodes of an expression that is better a rule
DEEP = 8  # expressions inside each other


def parse(schema: object, spaces: bool = False) -> Rules:
    """The grammar of all JSON texts that a schema allows.

    With `spaces`, one space may follow each comma and colon. Raises GrammarError, which
    names keyword and path, for what cannot be enforced.
    """
    return read(Reader(schema), spaces)


def read(reader: Reader, spaces: bool = False) -> Rules:
    """The grammar of the document of a reader."""
    start = reader.child("#")
    scalars = Scalars()
    parts = find(reader, start, scalars)
    writer = _Writer(parts, scalars, Style.of(spaces))
    for part in parts.order:
        with named(part):
            writer.write(part)
    return _reachable(Rules(writer.written[start], scalars.rules))


def _reachable(grammar: Rules) -> Rules:
    """The same grammar without the rules that are never called."""
    kept: dict[str, Expression] = {}
    work = [grammar.start]
    while work:
        tree = work.pop()
        if isinstance(tree, Call) and tree.rule not in kept:
            kept[tree.rule] = grammar.rules[tree.rule]
            work.append(kept[tree.rule])
        elif isinstance(tree, Concatenation):
            work += tree.parts
        elif isinstance(tree, Alternation):
            work += tree.options
        elif isinstance(tree, Repetition):
            work.append(tree.body)
    return Rules(grammar.start, kept)


@dataclass
class _Writer:
    """The expression of each part as far as it is known."""

    parts: Parts
    scalars: Scalars
    style: Style
    written: dict[Both, Expression] = field(default_factory=dict)
    depth: dict[Both, int] = field(default_factory=dict)

    def write(self, part: Both) -> None:
        """The expression of a part, whose children are written or recursive."""
        found = self.parts.values[part]
        options = list(self.parts.texts[part])
        options += [self._array(arrays) for arrays in found.arrays]
        options += [self._object(objects) for objects in found.objects]
        tree = one_of(options) if part in self.parts.alive else NOTHING
        check_size(tree, "the value")
        depth = 1 + max(
            (self.depth.get(c, 0) for c in self.parts.children[part]), default=0
        )
        big = tree.size > LARGE or depth > DEEP
        if part in self.parts.alive and (part in self.parts.recursive or big):
            self.written[part], depth = self.scalars.rule(name_of(part), tree), 0
        else:
            self.written[part] = tree
        self.depth[part] = depth

    def _value(self, part: Both) -> Expression:
        if part not in self.parts.alive:
            return NOTHING
        return (
            Call(name_of(part)) if part in self.parts.recursive else self.written[part]
        )

    def _array(self, held: Arrays) -> Expression:
        if not all(item in self.parts.alive for item in needed(held)):
            return NOTHING
        prefix, most = held.prefix, held.most
        dead = [i for i, item in enumerate(prefix) if item not in self.parts.alive]
        dead += [len(prefix)] if held.rest not in self.parts.alive else []
        if dead:
            most = min(dead) if most is None else min(most, *dead)
        items = [self._value(item) for item in prefix]
        rest = self._repeated(held.rest, max(held.least, most or 0) - len(prefix))
        return json_text.array(items, rest, held.least, most, self.style)

    def _repeated(self, part: Both, copies: int) -> Expression:
        """The expression of a part, a rule if that many copies would be large."""
        tree = self._value(part)
        small = isinstance(tree, Call) or copies * tree.size <= LARGE
        return tree if small else self.scalars.rule(name_of(part), tree)

    def _object(self, held: Objects) -> Expression:
        if not self.parts.has_object(held):
            return NOTHING
        members = [
            Member(key, self._value(value), key in held.required)
            for key, value in held.properties
            if value in self.parts.alive
        ]
        extras: list[Expression] = [
            Concatenation(
                (self.scalars.key(keys), self.style.colon, self._value(value))
            )
            for keys, value in held.extras()
            if value in self.parts.alive
        ]
        most = held.most if extras else 0
        bounds = (held.least if extras else 0, most)
        return json_text.object_of(members, one_of(extras), bounds, self.style)
