"""Given values (enum, const) as sets: one value, with one spelling.

Public: set_of, merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.containers import NEVER, Arrays, Both, Objects, Side
from tinyllm.grammar.jsonschema.document import shown
from tinyllm.grammar.jsonschema.numbers import Numbers, exact
from tinyllm.grammar.jsonschema.strings import Strings, is_text
from tinyllm.grammar.jsonschema.values import Values, Words

_WORDS = {None: "null", True: "true", False: "false"}


def set_of(
    value: object, path: str, part: Callable[[str | int, object], Both]
) -> Values:
    """The set that holds only this value of JSON.

    part(name, inside) names what stands at an index or key inside the value. Raises
    GrammarError for what is no value of JSON.
    """
    if value is None or isinstance(value, bool):
        return Values(words=(Words(frozenset((_WORDS[value],))),))
    if isinstance(value, int | float) and _is_writable(value):
        return Values(numbers=(Numbers(values=frozenset((exact(value),))),))
    if isinstance(value, str) and is_text(value):
        return Values(strings=(Strings(values=frozenset((value,))),))
    if isinstance(value, list):
        items = tuple(part(i, item) for i, item in enumerate(value))
        n_items = len(items)
        return Values(arrays=(Arrays(items, NEVER, n_items, n_items),))
    if isinstance(value, dict) and all(map(is_text, value)):
        members = tuple((key, part(key, inside)) for key, inside in value.items())
        closed = Side(additional=NEVER)
        return Values(objects=(Objects(members, tuple(value), (closed,)),))
    raise GrammarError(f"{path} holds {shown(value)}, which cannot be written as JSON")


def _is_writable(number: int | float) -> bool:
    if isinstance(number, int):
        return number.bit_length() < 10_000
    return math.isfinite(number)


def merged(options: list[Values]) -> Values:
    """The union of sets of given values, those of one type in one set."""
    numbers = [v for o in options for n in o.numbers for v in n.values or ()]
    strings = [v for o in options for s in o.strings for v in s.values or ()]
    words = [v for o in options for w in o.words for v in w.allowed]
    return Values(
        (Words(frozenset(words)),) if words else (),
        (Numbers(values=frozenset(numbers)),) if numbers else (),
        (Strings(values=frozenset(strings)),) if strings else (),
        tuple(held for option in options for held in option.arrays),
        tuple(held for option in options for held in option.objects),
    )
