"""What becomes of each keyword of a schema: enforced, an annotation, or refused.

Public: receipt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinyllm.grammar.jsonschema.document import (
    ANNOTATIONS,
    RefusedError,
    children,
    shown,
)
from tinyllm.grammar.jsonschema.keywords import ENFORCED, Reader
from tinyllm.grammar.jsonschema.read import read

Row = tuple[str, str, str]


def receipt(schema: object) -> list[Row]:
    """Return each keyword of a schema with its place and its verdict, in their order.

    The verdict is "enforced", "annotation" or "refused"; a keyword of a place
    that says nothing about any value, such as a definition that nothing refers to, is
    an annotation. A schema that compiles has no row that is refused.
    """
    reader = Reader(schema, keep_refused=True)
    last = list[RefusedError]()
    try:
        read(reader)
    except RefusedError as error:
        last.append(error)
    blamed = {(e.path, e.keyword): None for e in [*(reader.refused or ()), *last]}
    rows = []
    for at, keyword in _keywords(schema):
        silent = at not in reader.visited and not last
        verdict = "annotation" if silent else _verdict(keyword)
        rows.append((at, keyword, "refused" if (at, keyword) in blamed else verdict))
    known = {row[:2] for row in rows}
    return rows + [(*place, "refused") for place in blamed if place not in known]


def _verdict(keyword: str) -> str:
    if keyword in ANNOTATIONS:
        return "annotation"
    return "enforced" if keyword in ENFORCED else "refused"


def _keywords(schema: object) -> Iterator[tuple[str, str]]:
    """Return every keyword with its place, those of a schema before those inside it."""
    work: list[tuple[str, object]] = [("#", schema)]
    while work:
        path, inside = work.pop()
        if isinstance(inside, Mapping):
            for keyword in inside:
                yield path, keyword if isinstance(keyword, str) else shown(keyword)
            work += reversed(list(children(path, inside)))
