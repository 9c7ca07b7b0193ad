"""JSON Schema, read into rules: what is not enforced is refused.

Public: parse, read, MAX_PARTS.

Each part of a value is a conjunction of places of the schema (containers.Conjunction).
All of them are found first; then each becomes an expression, inside out. What recurs,
is large or deep, and each string that is not a constant, becomes a rule of its own; the
rest is written in place. A part that no value fulfils needs no care here: the graph of
all rules leaves out what cannot reach the end (network.py).

What is written is always valid. Some valid values cannot be written:
- keys in another order than declared ones in the order of the schema, then required
  ones that are not declared, then all others; a declared key twice;
- 1.0 or 1e0 for an integer, a multiple of one or a constant; exponents, and more than
  15 digits with a fraction, for a number with bounds;
- a constant or an extra key in other than its canonical spelling;
- strings outside the subsets of the formats (formats), which are asserted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    Alternation,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    literal,
    optional,
)
from tinyllm.grammar.json_text import (
    COMPACT,
    SPACED,
    Style,
    array,
    items,
    member,
    object_of,
)
from tinyllm.grammar.jsonschema.automaton import Machine
from tinyllm.grammar.jsonschema.containers import EVERY, Arrays, Conjunction, Objects
from tinyllm.grammar.jsonschema.document import RefusedError
from tinyllm.grammar.jsonschema.keywords import Reader
from tinyllm.grammar.jsonschema.numbers import Numbers
from tinyllm.grammar.jsonschema.strings import Strings
from tinyllm.grammar.jsonschema.values import Values

LARGE = 2_000  # automaton nodes of an expression that is better a rule
DEEP = 8  # expressions inside each other
MAX_PARTS = 3_000  # conjunctions of places


def parse(schema: object, spaces: bool = False) -> Rules:
    """Return the grammar of all JSON texts that a schema allows.

    With `spaces`, one space may follow each comma and colon. Raises GrammarError, which
    names keyword and path, for what cannot be enforced.
    """
    return read(Reader(schema), spaces)


def read(reader: Reader, spaces: bool = False) -> Rules:
    """Return the grammar of the document of a reader."""
    start = reader.child("#")
    writer = _Writer(reader, SPACED if spaces else COMPACT)
    for part in writer.find(start):
        with _named(part):
            writer.write(part)
    return Rules(writer.written[start], writer.rules)


def _name_of(part: Conjunction) -> str:
    """Return the name of a rule: the places that the value must fulfil."""
    if part == EVERY:
        return "any value"
    return " and ".join(("" if it.allowed else "not ") + it.path for it in part)


@contextmanager
def _named(part: Conjunction) -> Iterator[None]:
    """Give an error the place at which it arose."""
    try:
        yield
    except RefusedError:
        raise
    except GrammarError as error:
        raise RefusedError(_name_of(part), "", str(error)) from error


def _one_of(options: list[Expression]) -> Expression:
    """Return any one of the options, without a node around a single one."""
    return options[0] if len(options) == 1 else Alternation(tuple(options))


@dataclass
class _Writer:
    """The values of each part, and its expression as soon as it is written."""

    reader: Reader
    style: Style
    rules: dict[str, Expression] = field(default_factory=dict)
    values: dict[Conjunction, Values] = field(default_factory=dict)
    children: dict[Conjunction, tuple[Conjunction, ...]] = field(default_factory=dict)
    recursive: set[Conjunction] = field(default_factory=set)
    written: dict[Conjunction, Expression] = field(default_factory=dict)
    depth: dict[Conjunction, int] = field(default_factory=dict)
    scalars: dict[object, Expression] = field(default_factory=dict)  # each made once

    def find(self, start: Conjunction) -> list[Conjunction]:
        """Return all parts, each behind the parts inside it.

        Of each circle of parts inside each other one is in `recursive`: it comes last.
        """
        order, open_parts = [], {start}
        work = [(start, self._open(start))]
        while work:
            part, inside = work[-1]
            child = next(inside, None)
            if child is None:
                work.pop()
                open_parts.discard(part)
                order.append(part)
            elif child in open_parts:
                self.recursive.add(child)
            elif child not in self.values:
                open_parts.add(child)
                work.append((child, self._open(child)))
        return order

    def _open(self, part: Conjunction) -> Iterator[Conjunction]:
        """Read a part, each object with all its keys, and return its children."""
        with _named(part):
            found = self.reader.values(part)
            objects = [
                single
                for every in found.objects
                for single in every.declared().without_counts(_name_of(part))
            ]
        found = found._replace(objects=tuple(dict.fromkeys(objects)))
        self.values[part] = found
        if len(self.values) > MAX_PARTS:
            what = f"the schema has more than {MAX_PARTS:,} parts"
            raise RefusedError(_name_of(part), "", what)
        children: dict[Conjunction, None] = {}
        for arrays in found.arrays:
            children |= dict.fromkeys((*arrays.prefix, arrays.rest))
        for single in found.objects:
            children |= dict.fromkeys(value for _, value in single.properties)
            children |= dict.fromkeys(value for _, value in single.extras())
        self.children[part] = tuple(children)
        return iter(children)

    def write(self, part: Conjunction) -> None:
        """Make the expression of a part; its children are written or recursive."""
        found, name = self.values[part], _name_of(part)
        words = sorted(word for some in found.words for word in some.allowed)
        options = [literal(word) for word in words]
        options += [self._number(numbers) for numbers in found.numbers]
        options += [self._string(found.strings, name)] if found.strings else []
        options += [self._array(arrays) for arrays in found.arrays]
        options += [self._object(objects) for objects in found.objects]
        tree = _one_of(options)
        inside = [self.depth.get(child, 0) for child in self.children[part]]
        depth = 1 + max(inside, default=0)
        if part in self.recursive or _is_large(tree) or depth > DEEP:
            tree, depth = self._rule(name, tree), 0
        self.written[part], self.depth[part] = tree, depth

    def _rule(self, name: str, tree: Expression) -> Expression:
        """Return the call of a new rule."""
        self.rules[name] = tree
        return Call(name)

    def _number(self, numbers: Numbers) -> Expression:
        if numbers not in self.scalars:
            tree = numbers.expression()
            every = numbers == Numbers()
            self.scalars[numbers] = self._rule("number", tree) if every else tree
        return self.scalars[numbers]

    def _string(self, strings: tuple[Strings, ...], name: str) -> Expression:
        """Return one expression for all strings: a rule unless they are constants."""
        if strings not in self.scalars:
            tree = _one_of([some.expression() for some in strings])
            if any(some.values is None for some in strings):
                every = strings == (Strings(),)
                tree = self._rule("string" if every else f"string {name}", tree)
            self.scalars[strings] = tree
        return self.scalars[strings]

    def _key(self, keys: tuple[Strings, ...]) -> Expression:
        """Return the canonical texts of the keys of an object."""
        if ("key", keys) not in self.scalars:
            self.scalars["key", keys] = _one_of([some.key() for some in keys])
        return self.scalars["key", keys]

    def _value(self, part: Conjunction) -> Expression:
        recursive = part in self.recursive
        return Call(_name_of(part)) if recursive else self.written[part]

    def _array(self, arrays: Arrays) -> Expression:
        low, high = arrays.min_items, arrays.max_items
        prefix = [self._value(item) for item in arrays.prefix]
        rest, n = self._value(arrays.rest), len(prefix)
        if not prefix:
            return array(rest, low, high, self.style)
        more = Concatenation((self.style.comma, rest))
        tree: Expression = Repetition(
            more, max(low - n, 0), None if high is None else high - n
        )
        for i in range(n - 1, -1, -1):
            before = (self.style.comma, prefix[i]) if i else (prefix[i],)
            tree = Concatenation((*before, tree))
            tree = tree if i < low else optional(tree)
        return Concatenation((literal("["), tree, literal("]")))

    def _object(self, objects: Objects) -> Expression:
        members = [
            (member(key, self._value(value), self.style), key in objects.required)
            for key, value in objects.properties
        ]
        extras: list[Expression] = [
            Concatenation((self._key(keys), self.style.colon, self._value(value)))
            for keys, value in objects.extras()
        ]
        if extras and objects.max_members != 0:
            low, high = objects.min_members, objects.max_members
            some = items(_one_of(extras), max(low, 1), high, self.style)
            members.append((some, low > 0))
        return object_of(members, self.style)


def _is_large(tree: Expression) -> bool:
    """Return whether a tree asks for more than LARGE automaton nodes."""
    size, work = 0, [tree]
    while work and size <= LARGE:
        node = work.pop()
        size += len(node.edges) if isinstance(node, Machine) else 1
        if isinstance(node, Concatenation):
            work += node.parts
        elif isinstance(node, Alternation):
            work += node.options
        elif isinstance(node, Repetition):
            work.append(node.body)
    return size > LARGE
