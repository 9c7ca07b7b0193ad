"""Write down what a session does: `Recorder`, and an `Event` for each call.

`tinyllm.widgets.timeline` draws the events. All figures are the session's own counters
and ids, so that the picture cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinyllm.decode.session import Session
from tinyllm.model.layers import Array


@dataclass(frozen=True)
class Event:
    """One call of a session: what was asked, what it held, what it counted.

    `asked` are the ids given, from position `start`; `beyond` those whose keys and
    values lie in memory after the end. `reused`, `forwarded` and `given_up` are how far
    the session's own counters moved.
    """

    call: str
    n_ctx: int
    asked: tuple[int, ...]
    start: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    beyond: tuple[int, ...]
    reused: int
    forwarded: int
    given_up: int

    @property
    def kept(self) -> int:
        """Return how many positions from the first on were not touched."""
        return len(self.after) - self.forwarded


class Recorder:
    """A session whose calls are written down; one that raises is passed on, unwritten.

    `events` are the calls so far. The session's ids and counters are read before and
    after each, so what others do to it in between is seen, but is not an event.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: tuple[Event, ...] = ()
        self._slots = tuple(session.token_ids)  # whose keys lie in memory, in order

    def feed(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after a whole transcript; see `Session.feed`."""
        logits: Array = self._noted("feed", list(token_ids), 0, self.session.feed)
        return logits  # (V,)

    def extend(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after some more ids; see `Session.extend`."""
        start, ids = self.session.length, list(token_ids)
        logits: Array = self._noted("extend", ids, start, self.session.extend)
        return logits  # (V,)

    def rewind(self, n: int) -> None:
        """Keep the first n positions; see `Session.rewind`."""
        self._noted(f"rewind to {n}", (), 0, lambda _: self.session.rewind(n))

    def reset(self) -> None:
        """Forget everything; see `Session.reset`."""
        self._noted("reset", (), 0, lambda _: self.session.reset())

    def _noted(
        self,
        call: str,
        asked: Sequence[int],
        start: int,
        do: Callable[[Sequence[int]], Any],
    ) -> Any:
        session = self.session
        before, counts = session.token_ids, _counts(session)
        slots = (*before, *self._slots[len(before) :])
        try:
            result = do(asked)
        except BaseException:  # slots beyond the end may have been written half-way
            self._slots = tuple(session.token_ids)
            raise
        after = tuple(session.token_ids)
        moved = (b - a for a, b in zip(counts, _counts(session), strict=True))
        beyond = slots[len(after) :]
        self._slots = after + beyond
        rows = tuple(map(int, asked)), start, tuple(before), after, beyond
        self.events += (Event(call, session.n_ctx, *rows, *moved),)
        return result


def _counts(session: Session) -> tuple[int, int, int]:
    return session.reused, session.forwarded, session.rewound
