"""A schema as a document: its places, their keywords, and where a $ref leads.

Public: Document, RefusedError, inner, children, shown, ANNOTATIONS, DRAFTS, NEWEST.

A place is a JSON pointer (RFC 6901) behind #. References are resolved inside the
document only: pointers, $anchor and $id; nothing is ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from tinyllm.errors import GrammarError

ANNOTATIONS = {"title", "description", "default", "examples", "deprecated", "readOnly"}
ANNOTATIONS |= {"writeOnly", "$comment", "$defs", "definitions", "$schema", "$id"}
ANNOTATIONS |= {"$anchor", "contentEncoding", "contentMediaType", "contentSchema"}
ANNOTATIONS |= {"$dynamicAnchor"}
NEWEST = "https://json-schema.org/draft/2020-12/schema"
DRAFTS = {
    NEWEST,
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/schema",
}
_ONE = {"items", "additionalProperties", "not", "if", "then", "else", "propertyNames"}
_ONE |= {"contains", "unevaluatedItems", "unevaluatedProperties", "contentSchema"}
_LIST = {"allOf", "anyOf", "oneOf", "prefixItems"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}


MAX_NAMES = 1000  # from # to the innermost schema, two for each of properties
_INDEX = re.compile("[0-9]{1,9}$", re.ASCII)


class RefusedError(GrammarError):
    """A keyword that cannot be enforced: `path` and `keyword` say which."""

    def __init__(self, path: str, keyword: str, what: str) -> None:
        shown = f"{_short(path)}: {keyword} {what}" if keyword else f"{path}: {what}"
        super().__init__(shown.encode("utf-8", "backslashreplace").decode())
        self.path = path
        self.keyword = keyword


def shown(value: object) -> str:
    """Return a value for a message, cut; its type if it is too large or deep."""
    try:
        return f"{value!r:.40}"
    except (ValueError, RecursionError):
        return f"<{type(value).__name__} too large to show>"


def _short(path: str) -> str:
    return path if len(path) <= 200 else path[:197] + "..."


def inner(path: str, *names: str | int) -> str:
    """Return the place below a place: inner("#", "a/b", 0) is #/a~1b/0."""
    parts = (str(name).replace("~", "~0").replace("/", "~1") for name in names)
    return "/".join((path, *parts))


class Document:
    """All schemas of a document by their places, and what they are called."""

    def __init__(self, schema: object) -> None:
        self.schemas: dict[str, Any] = {"false": False}
        self._base: dict[str, str] = {"false": ""}
        self._resources: dict[str, str] = {}  # URI to place
        self._anchors: dict[str, str] = {}  # URI with fragment to place
        self._walk("#", schema, "")

    def at(self, path: str) -> object:
        """Return the schema at a place."""
        return self.schemas[path]

    def target(self, path: str, reference: object, keyword: str) -> str:
        """Return the place to which a reference at a place leads."""
        if not isinstance(reference, str):
            raise RefusedError(
                path, keyword, f"must be a string, not {shown(reference)}"
            )
        uri, fragment = urldefrag(_joined(self._base[path], reference))
        found = self._resources.get(uri)
        if found is None:
            what = f"{shown(reference)} leads out of the document: nothing is fetched"
            raise RefusedError(path, keyword, f"{what}; copy it into $defs")
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get(f"{uri}#{fragment}")
        elif fragment:
            found = self._follow(found, unquote(fragment).split("/")[1:])
        if found is None:
            raise RefusedError(path, keyword, f"{shown(reference)} leads to no schema")
        return found

    def _follow(self, path: str, names: list[str]) -> str | None:
        """Return the place that a pointer from a place names, None for nothing."""
        value, base = self.schemas[path], self._base[path]
        for raw in names:
            name = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(value, Mapping) and name in value:
                value = value[name]
            elif (
                isinstance(value, list)
                and _INDEX.match(name)
                and (int(name) < len(value))
            ):
                value = value[int(name)]
            else:
                return None
            path = f"{path}/{raw}"
            base = self._base.get(path, base)
        if path not in self.schemas:
            self._walk(path, value, base)
        return path

    def _walk(self, path: str, schema: object, base: str) -> None:
        """Remember a schema and all schemas inside it."""
        work = [(path, schema, base)]
        if path == "#":
            self._resources[""] = "#"
        while work:
            path, schema, base = work.pop()
            if path.count("/") > MAX_NAMES:
                what = f"places are nested more than {MAX_NAMES} names deep"
                raise RefusedError(path, "", what)
            self.schemas[path] = schema
            self._base[path] = base
            if not isinstance(schema, Mapping):
                continue
            name = schema.get("$id")
            if isinstance(name, str):
                base = self._base[path] = urldefrag(_joined(base, name)).url
                self._resources.setdefault(base, path)
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(keyword), str):
                    self._anchors.setdefault(f"{base}#{schema[keyword]}", path)
            work += [(at, inside, base) for at, inside in children(path, schema)]


def children(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Return the schemas directly inside a schema, with their places."""
    for keyword, value in schema.items():
        if keyword in _ONE:
            yield inner(path, keyword), value
        elif keyword in _LIST and isinstance(value, list):
            yield from ((inner(path, keyword, i), v) for i, v in enumerate(value))
        elif keyword in _NAMED and isinstance(value, Mapping):
            for name, inside in value.items():
                if isinstance(name, str):
                    yield inner(path, keyword, name), inside


def _joined(base: str, reference: str) -> str:
    """Return the URI of a reference (RFC 3986), also where the base is a URN."""
    if reference.startswith("#"):
        return urldefrag(base).url + reference
    return urljoin(base, reference)
