"""Every error that tinyllm raises on purpose, so that a caller can catch one family.

A message says what was given, what was expected and what to try. `check_int` is the one
way to say that an option must be a whole number, `Named` that a name is not known.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Generic, NoReturn, TypeGuard, TypeVar

Value = TypeVar("Value")


class TinyllmError(Exception):
    """The parent of all errors below: `except TinyllmError` catches them all."""


class TokenizationError(TinyllmError):
    """A tokenizer file or a text cannot be turned into token ids."""


class InvalidTokenError(TinyllmError):
    """A token id is not a whole number inside the vocabulary."""


class InferenceError(TinyllmError):
    """The forward pass, the cache or the sampler was asked for the impossible."""


class PromptTooShortError(InferenceError):
    """A prompt has too few tokens for what was asked of it."""


class ContextFullError(InferenceError):
    """A position lies at or beyond the context limit of the model."""


class CacheError(InferenceError):
    """A cache was used with another model, or for positions that it does not hold."""


class CheckpointError(TinyllmError):
    """A model file is damaged, unsafe or of a kind that is not supported."""


class ModelNotFoundError(CheckpointError):
    """No model is known by that name, or nothing lies at that path."""


class DownloadError(CheckpointError):
    """A model could not be fetched, or not be put on the disk."""


class GrammarError(TinyllmError):
    """A schema cannot be enforced, or a token is illegal in a state."""


class ToolError(TinyllmError):
    """A tool was described or called wrongly."""


class ProtocolError(TinyllmError):
    """A reply does not follow the agent's protocol."""


class ServerError(TinyllmError):
    """A chat server cannot be reached, or does not answer as one should.

    In the middle of a run, `trace` has the steps that were done until then.
    """

    trace: Any = None  # an agent.trace.Trace


class TimeUpError(TinyllmError):
    """The time of a run is over, which ends the slot that is being written."""


class UsageError(TinyllmError):
    """The user asked for something that makes no sense: say what to try."""


def is_int(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number, numpy's too; a bool is not one."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_int(name: str, value: object, least: int = 0) -> int:
    """Return the value as an int; UsageError unless it is a whole number from `least`.

    >>> check_int("seed", 3)
    3
    """
    if is_int(value) and value >= least:
        return int(value)
    raise UsageError(
        f"{name} must be a whole number of {least} or more, not {value!r:.40}"
    )


class Named(dict[str, Value], Generic[Value]):
    """A dict in which an unknown name is a UsageError that lists the known ones.

    >>> Named("arm", {"free": 1, "mask": 2})["mask"]
    2
    """

    def __init__(self, kind: str, values: dict[str, Value]) -> None:
        super().__init__(values)
        self.kind = kind

    def __missing__(self, name: str) -> NoReturn:
        raise UsageError(f"no {self.kind} {name!r}: there are {', '.join(self)}")
