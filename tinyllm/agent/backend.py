"""The interface between the loop and a model: `Slot`, and the `Backend` that fills it.

The loop hands over the whole transcript as ids and gets back one slot. Whether a model
on this machine wrote it or a server far away, the loop does not know. `Listener` is the
callback that the loop hands over, and `time_left` is what it knows of the time;
`check_flag` and `check_seconds` are for the options that backends share.

Before: agent.tools. Next: agent.local.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tinyllm.agent.protocol import parse_call
from tinyllm.agent.tools import Registry
from tinyllm.decode.generate import Choice
from tinyllm.errors import ProtocolError, UsageError
from tinyllm.progress import ignore

if TYPE_CHECKING:
    from tinyllm.engine import Tokenizer

OnText = Callable[[str], object]  # gets each piece of a text as it is written
Count = int | None  # None where a server does not say
MAX_SECONDS = 86_400.0  # of any time limit: a day


@dataclass(frozen=True)
class Slot:
    """What the model wrote in one slot, exactly as ids, and what it cost.

    `tokens` counts all tokens of all `attempts`, of which only the last is kept.
    `legal_min` is the smallest number of tokens that were legal at any position.
    `mass_kept` is the retained probability mass: the share of its probability that the
    model gave to legal tokens, averaged over the tokens. Both are None unless a grammar
    of ours masked the call. `forced`: the token limit was near and the grammar wrote
    the end. `forwarded` and `reused` count positions. `asked`: a server was sent the
    schema; `constrained` only if the server has shown that it enforces it.
    """

    token_ids: tuple[int, ...]
    text: str
    tokens: Count = 0
    constrained: bool = False
    legal_min: int | None = None
    mass_kept: float | None = None
    forced: bool = False
    forwarded: Count = 0
    reused: Count = 0
    attempts: int = 1
    asked: bool = False
    # on request only, and not compared: arrays have no single truth value
    choices: tuple[Choice, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Listener:
    """A callback for the text of a slot that also knows how long the run may take.

    A backend that waits for somebody else needs to know: it may wait in vain.
    """

    on_text: OnText
    seconds_left: Callable[[], float]

    def __call__(self, text: str) -> None:
        """Hand on a piece of the text."""
        self.on_text(text)


def time_left(on_text: OnText) -> float:
    """Return the seconds that the run of a slot has left: inf for other callbacks."""
    return on_text.seconds_left() if isinstance(on_text, Listener) else math.inf


class Backend(Protocol):
    """What the loop needs of a backend: slots for a transcript, and its limits."""

    n_ctx: int  # positions; bytes where a server hides its tokens
    tools: Registry  # the calls that are legal

    @property
    def tokenizer(self) -> Tokenizer:
        """Return what encodes scaffolding, tasks and observations as ids."""

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools."""

    def reset(self) -> None:
        """Start afresh."""

    def thought(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """Return the thought that follows the transcript."""

    def call(self, token_ids: Sequence[int], on_text: OnText = ignore) -> Slot:
        """Return the call that follows the transcript."""


def parses(text: str) -> bool:
    """Return whether the text is a call."""
    try:
        parse_call(text)
    except ProtocolError:
        return False
    return True


def total(counts: Sequence[Count]) -> Count:
    """Return the sum, or None where one of the counts is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def check_flag(name: str, value: bool) -> bool:
    """Return the value; UsageError unless it is True or False."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {value!r:.40}")
    return value


def check_seconds(name: str, value: float) -> float:
    """Return the value; UsageError unless it is a number above 0, in seconds."""
    # True is an int to Python, and not a time to anybody
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value <= MAX_SECONDS):
        raise UsageError(
            f"{name} must be seconds, above 0 and at most {MAX_SECONDS:g}, "
            f"not {value!r:.40}"
        )
    return float(value)
