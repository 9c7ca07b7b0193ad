"""Whether a set of values is certainly empty: are two schemas disjoint?

Public: is_empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tinyllm.grammar.jsonschema.containers import EVERY, NEVER, Arrays, Both, Objects
from tinyllm.grammar.jsonschema.values import Values

Read = Callable[[Both], Values]


def is_empty(found: Values, read: Read, depth: int = 4) -> bool:
    """Whether a set is certainly empty, looking `depth` levels deep.

    `read` gives the values of a conjunction.
    """
    scalars = found.words or found.numbers or found.strings
    options: list[Arrays | Objects] = [*found.arrays, *found.objects]
    return not scalars and all(_is_hollow(held, read, depth) for held in options)


def _is_hollow(held: Arrays | Objects, read: Read, depth: int) -> bool:
    if isinstance(held, Objects):
        needed: Iterable[Both] = (held.of(key) for key in held.required)
    else:
        needed = (*held.prefix, *[held.rest] * held.least)[: held.least]
    if depth == 0:
        return NEVER in needed
    return any(
        is_empty(read(part), read, depth - 1)
        for part in dict.fromkeys(needed)
        if part != EVERY
    )
