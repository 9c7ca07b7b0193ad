"""Options of a backend, checked by name: each value itself, or a UsageError."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tinyllm.errors import UsageError, check_int

MAX_DURATION = 86_400.0  # seconds


def text(name: str, value: str) -> str:
    """The value; UsageError unless it is a text with something in it."""
    if not (isinstance(value, str) and value.strip()):
        raise UsageError(f"{name} must be a text that is not empty, not {value!r:.40}")
    return value


def flag(name: str, value: bool) -> bool:
    """The value; UsageError unless it is True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {value!r:.40}")
    return value


def positive(name: str, value: int) -> int:
    """The value; UsageError unless it is a whole number of 1 or more."""
    return check_int(name, value, least=1)


def duration(name: str, value: float) -> float:
    """The value; UsageError unless it is a number above 0, in seconds."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value <= MAX_DURATION):
        raise UsageError(
            f"{name} must be seconds, above 0 and at most {MAX_DURATION:g}, "
            f"not {value!r:.40}"
        )
    return float(value)


def function(name: str, value: Callable[..., Any]) -> Callable[..., Any]:
    """The value; UsageError unless it can be called."""
    if not callable(value):
        raise UsageError(f"{name} must be a function, not {value!r:.40}")
    return value


def key(value: str | None) -> str | None:
    """The API key; UsageError, which does not show it, if it cannot be sent."""
    if value is None:
        return None
    if not (isinstance(value, str) and re.fullmatch("[!-~]+", value)):
        raise UsageError("api_key must be printable ASCII without spaces, or None")
    return value
