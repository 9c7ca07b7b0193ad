"""What stands between the loop and a model: `Slot`, and the `Backend` that fills it.

The loop hands over the whole transcript as ids and gets back one slot. Whether a model
on this machine wrote it or a server far away, the loop does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tinyllm.agent.protocol import parse_call
from tinyllm.agent.tools import Registry
from tinyllm.decode.generate import Choice
from tinyllm.errors import ProtocolError

if TYPE_CHECKING:
    from tinyllm.engine import Tokenizer

OnText = Callable[[str], object]
Count = int | None  # None where a server does not say


@dataclass(frozen=True)
class Slot:
    """What the model wrote in one slot, exactly as ids, and what it cost.

    `tokens` are all that were made for it, in `attempts` replies of which only the last
    is kept. `legal_min` is the smallest number of legal tokens met, `mass_kept` the
    share of its probability that the model gave to legal tokens, a mean over the
    tokens; both are None without a grammar of our own. `forced`: the ceiling was near
    and the grammar wrote the end. `forwarded` and `reused` count positions.
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
    choices: tuple[Choice, ...] = field(default=(), repr=False, compare=False)


class Backend(Protocol):
    """What the loop needs of a backend: slots for a transcript, and its limits."""

    n_ctx: int
    tools: Registry

    @property
    def tokenizer(self) -> Tokenizer:
        """What spells scaffolding, tasks and observations as ids."""

    def set_tools(self, tools: Registry | None) -> None:
        """Swap the tools."""

    def reset(self) -> None:
        """Start afresh."""

    def thought(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The thought that follows the transcript."""

    def call(self, token_ids: Sequence[int], on_text: OnText | None = None) -> Slot:
        """The call that follows the transcript."""


def parses(text: str) -> bool:
    """Whether the text is a call."""
    try:
        parse_call(text)
    except ProtocolError:
        return False
    return True


def total(counts: Sequence[Count]) -> Count:
    """The sum, or None where one of them is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def unheard(text: str) -> None:
    """The listener of a slot to which nobody listens."""
