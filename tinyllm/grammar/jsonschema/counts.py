"""Objects with a bounded number of members, as objects with chosen ones.

Public: without_counts.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from tinyllm.grammar.jsonschema.containers import NEVER, Objects
from tinyllm.grammar.jsonschema.document import RefusedError

MAX_SUBSETS = 6  # optional members whose number is limited


def without_counts(held: Objects, name: str) -> list[Objects]:
    """The same objects as sets in which `least` and `most` count the extra keys only.

    An extra key may be written twice, and then counts once: so of extra keys, at least
    one can be asked for, but not two.
    """
    required = [key for key, _ in held.properties if key in held.required]
    optional = [k for k, v in held.properties if k not in held.required]
    free = any(True for _ in held.extras())
    n_declared = len(required)
    ample = held.most is None or (not free and held.most >= n_declared + len(optional))
    if held.least <= n_declared and ample:
        return [replace(held, least=0, most=None)]
    if len(optional) > MAX_SUBSETS:
        what = f"cannot be counted over more than {MAX_SUBSETS} optional properties"
        keyword = "maxProperties" if held.least <= n_declared else "minProperties"
        raise RefusedError(name, keyword, what)
    found = []
    for size in range(len(optional) + 1):
        for chosen in combinations(optional, size):
            there = {*required, *chosen}
            most = None if held.most is None else held.most - len(there)
            least = max(held.least - len(there), 0)
            if (most is not None and (most < 0 or most < least)) or (
                least and not free
            ):
                continue
            if least > 1:
                what = "above 1 cannot be counted where extra keys may repeat"
                raise RefusedError(name, "minProperties", what)
            found.append(_exactly(held, there, least, most))
    return found


def _exactly(held: Objects, there: set[str], least: int, most: int | None) -> Objects:
    """The objects whose declared keys are just these."""
    properties = tuple((k, v if k in there else NEVER) for k, v in held.properties)
    required = tuple(key for key, _ in held.properties if key in there)
    return Objects(properties, required, held.sides, least, most)
