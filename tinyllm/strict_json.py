"""JSON read strictly: `read` a whole text, or `read_first`, the value it begins with.

Python's `json` lets pass what other readers refuse or understand differently: a key
given twice, NaN, 1e999, half a surrogate pair. A call, a file's header or a server's
reply must not mean one thing here and another thing elsewhere, so all of these are a
ValueError (a JSONDecodeError where the text is not JSON at all).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any


def read(text: str, parse_int: Callable[[str], Any] = int) -> Any:
    """Return the value of a JSON text; `parse_int` makes a number of its digits.

    >>> read('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    return _checked(_decoder(parse_int).decode, text)


def read_first(text: str) -> Any:
    """Return the JSON value at the start of a text; what follows it is ignored.

    >>> read_first('{"a": 1} and more')
    {'a': 1}
    """
    return _checked(lambda text: _decoder(int).raw_decode(text)[0], text)


def _checked(decode: Callable[[str], Any], text: str) -> Any:
    """Return what `decode` reads; ValueError for deep nesting and half a pair."""
    try:
        value = decode(text)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("the text is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise ValueError("a text holds half a surrogate pair") from error
    return value


def _decoder(parse_int: Callable[[str], Any]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique,
        parse_int=parse_int,
        parse_float=_finite,
        parse_constant=_finite,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs; a key given twice is an error, not a choice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = f"{', '.join(map(repr, found)):.60}"
        raise ValueError(f"a key is given twice among {keys}")
    return found


def _finite(text: str) -> float:
    """Return the number; NaN, Infinity and 1e999 are not JSON numbers."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.20} is not finite")
    return number
