"""What each keyword of JSON Schema says, as sets of values.

Public: Reader, ENFORCED.

A schema is the intersection of its keywords. Each speaks about values of one type and
allows all others (one_type); $ref, allOf, anyOf, oneOf, not and if are computed from
the sets of their schemas. What an item or member must be stays the name of a place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema import one_type, values
from tinyllm.grammar.jsonschema.containers import EVERY, NEVER, Conjunction, PathTerm
from tinyllm.grammar.jsonschema.document import (
    ANNOTATIONS,
    DRAFTS,
    NEWEST,
    Document,
    RefusedError,
    inner,
    shown,
)
from tinyllm.grammar.jsonschema.one_type import Schema
from tinyllm.grammar.jsonschema.strings import NoComplementError
from tinyllm.grammar.jsonschema.values import ALL, NONE, Values

MAX_IN_PLACE = 100  # $ref, allOf, anyOf and so on inside each other

_NOTES = {"$ref", "title", "description", "default", "examples", "$comment"}


class Reader:
    """Read the places of a document into sets of values, each once.

    The first keyword that cannot be enforced is raised, or all are kept in `refused`.
    """

    def __init__(self, schema: object, keep_refused: bool = False) -> None:
        self.refused: list[RefusedError] | None = [] if keep_refused else None
        self.document = Document(schema)
        self.visited: dict[str, None] = {}
        self._known: dict[PathTerm, Values] = {}
        self._constants: dict[str, object] = {}
        self._reading: list[str] = []

    def values(self, conjunction: Conjunction) -> Values:
        """Return the values that fulfil every term of a conjunction."""
        if NEVER[0] in conjunction:
            return NONE
        return reduce(values.intersection, map(self._term, conjunction), ALL)

    def _peek(self, conjunction: Conjunction) -> Values:
        """Return the values of a conjunction, ALL while one of its schemas is read."""
        kept, self.refused = self.refused, None
        try:
            return self.values(conjunction)
        except RefusedError:
            return ALL  # if it is refused for itself, this is found when it is read
        finally:
            self.refused = kept

    def _term(self, term: PathTerm) -> Values:
        if term not in self._known:
            if not term.allowed:
                found = self._complement(self._term(term.negated()), term.path, "not")
            elif term.constant:
                found = self._one(term.path, self._constants[term.path])
            else:
                found = self._place(term.path)
            self._known[term] = found
        return self._known[term]

    def read(self, path: str) -> Values:
        """Return the values that the schema at a place allows."""
        return self._term(PathTerm(path))

    def _place(self, path: str) -> Values:
        """Read the schema at a place, once; it may not lead back to itself."""
        if path in self._reading:
            what = "leads back to itself before any value is read"
            raise RefusedError(path, "$ref", what)
        if len(self._reading) > MAX_IN_PLACE:
            what = f"schemas are nested more than {MAX_IN_PLACE} deep"
            raise RefusedError(path, "", what)
        self._reading.append(path)
        self.visited[path] = None
        try:
            return self._schema(path, self.document.at(path))
        finally:
            self._reading.pop()

    def _schema(self, path: str, schema: object) -> Values:
        if isinstance(schema, bool):
            return ALL if schema else NONE
        if not isinstance(schema, Mapping):
            what = f"a schema must be a dict or a bool, not {shown(schema)}"
            raise RefusedError(path, "", what)
        found, done = ALL, set[str]()
        for keyword in schema:
            if not isinstance(keyword, str):
                what = f"a keyword must be a text, not {shown(keyword)}"
                raise RefusedError(path, "", what)
            group = _GROUPS.get(keyword, keyword)
            if group in done:
                continue
            done.add(group)
            try:
                more = self._keyword(path, schema, group, keyword)
                found = values.intersection(found, more)
            except RefusedError as error:
                self._refuse(error)
            except GrammarError as error:
                what = f"cannot be enforced: {error}"
                self._refuse(RefusedError(path, keyword, what))
        return found

    def _refuse(self, error: RefusedError) -> None:
        """Raise an error, or keep it if all of them are wanted."""
        if self.refused is None:
            raise error
        self.refused.append(error)

    def _keyword(self, path: str, schema: Schema, group: str, keyword: str) -> Values:
        if group in _READERS:
            return _READERS[group](self, path, schema)
        if keyword not in ANNOTATIONS:
            raise RefusedError(path, keyword, "cannot be enforced")
        if keyword == "$schema":
            self._dialect(path, schema[keyword])
        return ALL

    def _dialect(self, path: str, dialect: object) -> None:
        """Refuse a dialect in which the schema means something else.

        Older drafts lack keywords and ignore all beside $ref. To enforce that all the
        same is narrower, but not inside what is negated.
        """
        name = str(dialect).rstrip("#")
        if name not in DRAFTS:
            what = f"names {shown(dialect)}, a dialect that is not known"
            raise RefusedError(path, "$schema", what)
        negates = {"not", "if", "oneOf"}.intersection(
            keyword
            for schema in self.document.schemas.values()
            if isinstance(schema, Mapping)
            for keyword in schema
        )
        if name != NEWEST and negates:
            what = f"names a draft older than 2020-12, and {min(negates)} is read by"
            what += " that: leave $schema out if it may be"
            raise RefusedError(path, "$schema", what)

    # Schemas inside a schema

    def child(self, *names: str | int) -> Conjunction:
        """Return the conjunction of one place, EVERY or NEVER for true or false.

        A place that has nothing but a $ref is the place to which it leads.
        """
        path = inner(str(names[0]), *names[1:])
        seen = set[str]()
        while path not in seen and _is_reference(self.document.schemas.get(path)):
            seen.add(path)
            self.visited[path] = None
            reference = self.document.schemas[path]["$ref"]
            path = self.document.target(path, reference, "$ref")
        schema = self.document.schemas.get(path)
        if schema is True:
            return EVERY
        return NEVER if schema is False else (PathTerm(path),)

    def _options(self, path: str, schema: Schema, keyword: str) -> list[Values]:
        options = schema[keyword]
        if not isinstance(options, list) or not options:
            raise RefusedError(path, keyword, "must be a list of at least one schema")
        return [self.read(inner(path, keyword, i)) for i in range(len(options))]

    def all_of(self, path: str, schema: Schema) -> Values:
        """Read allOf: the values of every schema."""
        return reduce(values.intersection, self._options(path, schema, "allOf"), ALL)

    def any_of(self, path: str, schema: Schema) -> Values:
        """Read anyOf: the values of any schema."""
        return values.union(self._options(path, schema, "anyOf"))

    def one_of(self, path: str, schema: Schema) -> Values:
        """Read oneOf: of each schema the values that no other one allows."""
        options = self._options(path, schema, "oneOf")
        alone = list(options)
        for i, mine in enumerate(options):
            for j, other in enumerate(options):
                shared = values.intersection(mine, other)
                if i != j and not values.is_empty(shared, self._peek):
                    schemas = f"its schemas {i} and {j}"
                    what = f"cannot be enforced: {schemas} may overlap, and"
                    outside = self._complement(other, path, "oneOf", what)
                    alone[i] = values.intersection(alone[i], outside)
        return values.union(alone)

    def not_(self, path: str, schema: Schema) -> Values:
        """Read not: all values but those of its schema."""
        return self._complement(self.read(inner(path, "not")), path, "not")

    def if_(self, path: str, schema: Schema) -> Values:
        """Read if, then, else: two cases; if alone, or without if, all is allowed."""
        if "if" not in schema or not ("then" in schema or "else" in schema):
            return ALL
        condition = self.read(inner(path, "if"))
        yes = self.read(inner(path, "then")) if "then" in schema else ALL
        no = self.read(inner(path, "else")) if "else" in schema else ALL
        outside = self._complement(condition, path, "if")
        cases = [(condition, yes), (outside, no)]
        return values.union([values.intersection(*case) for case in cases])

    def _complement(
        self, found: Values, path: str, keyword: str, what: str = "cannot be enforced:"
    ) -> Values:
        try:
            return values.complement(found)
        except NoComplementError as error:
            reason = f"{what} values that break {error} cannot be written"
            raise RefusedError(path, keyword, reason) from error

    def reference(self, path: str, schema: Schema) -> Values:
        """Read $ref: the values of its target."""
        return self.read(self.document.target(path, schema["$ref"], "$ref"))

    # Constants

    def enum(self, path: str, schema: Schema) -> Values:
        """Read enum: any of the values, each with one spelling."""
        listed = schema["enum"]
        if not isinstance(listed, list):
            raise RefusedError(path, "enum", f"must be a list, not {shown(listed)}")
        options = [self._one(inner(path, "enum", i), v) for i, v in enumerate(listed)]
        return values.union_of_constants(options)

    def const(self, path: str, schema: Schema) -> Values:
        """Read const: the one value."""
        return self._one(inner(path, "const"), schema["const"])

    def _one(self, path: str, value: object) -> Values:
        """Return the set of one constant, at a place."""

        def part(name: str | int, inside: object) -> Conjunction:
            at = inner(path, name)
            self._constants[at] = inside
            return (PathTerm(at, constant=True),)

        return values.constant(value, path, part)


def _is_reference(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "$ref" in schema and schema.keys() <= _NOTES


_GROUPS = one_type.GROUPS | dict.fromkeys(("if", "then", "else"), "if")
_READERS: dict[str, Callable[[Reader, str, Schema], Values]] = {
    **one_type.READERS,
    "$ref": Reader.reference,
    "allOf": Reader.all_of,
    "anyOf": Reader.any_of,
    "oneOf": Reader.one_of,
    "not": Reader.not_,
    "if": Reader.if_,
    "enum": Reader.enum,
    "const": Reader.const,
}
ENFORCED = (set(_GROUPS) | set(_READERS)) - (set(_GROUPS.values()) - {"if"})
