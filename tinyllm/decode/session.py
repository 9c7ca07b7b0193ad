"""A transcript and its cache, which move together: `Session`.

`feed` takes a whole transcript and forwards only what is new; `rewind` goes back,
`fork` branches. A model is whatever fits `Forward`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from itertools import takewhile
from operator import eq
from typing import Protocol

from tinyllm.errors import InferenceError
from tinyllm.model.cache import KVCache
from tinyllm.model.config import Config
from tinyllm.model.layers import Array


class Forward(Protocol):
    """What a session needs of a model: ids in, states and logits out."""

    exact: bool

    @property
    def config(self) -> Config:
        """Return the sizes."""

    def check(self, token_ids: Sequence[int], start: int = 0) -> list[int]:
        """Return the ids, fit to be forwarded from position `start`, or raise."""

    def hidden(self, token_ids: Sequence[int], cache: KVCache | None = None) -> Array:
        """Return the state (T, D) at each id; the cache holds them afterwards."""

    def logits(self, hidden: Array) -> Array:
        """Return scores (T, V) for states (T, D)."""

    def forward(self, token_ids: Sequence[int], cache: KVCache | None = None) -> Array:
        """Return logits (T, V) after each id."""


class Session:
    """One sequence of token ids with the cache of their keys and values.

    `forwarded`, `reused` and `rewound` count positions over the session's life;
    `eos_ids` end a text. After any exception, KeyboardInterrupt included, the session
    is as if the call had not been made, or empty where its old positions were being
    overwritten. A thread that calls while another is inside gets InferenceError.
    """

    def __init__(
        self,
        model: Forward,
        eos_ids: Collection[int] = (),
        cache: KVCache | None = None,
    ) -> None:
        self.model = model
        self.eos_ids = frozenset(eos_ids)
        self.cache = KVCache(model.config) if cache is None else cache
        self.forwarded = 0
        self.reused = 0
        self._began_with = self.cache.length
        # The ids of the first cache.length entries are held; what may stand beyond is
        # as meaningless as the cache's slots there. So both move with one assignment.
        self._ids: list[int] = []
        self._alone = _OneThread()

    @property
    def length(self) -> int:
        """Return how many positions are held."""
        return self.cache.length

    @property
    def n_ctx(self) -> int:
        """Return how many positions the context has."""
        return self.model.config.n_ctx

    @property
    def room(self) -> int:
        """Return how many positions are still free."""
        return self.model.config.n_ctx - self.cache.length

    @property
    def rewound(self) -> int:
        """Return how many positions were given up: what came in and is held no more."""
        return self._began_with + self.forwarded - self.cache.length

    @property
    def token_ids(self) -> list[int]:
        """Return a copy of the ids that are held."""
        return self._ids[: self.cache.length]

    def last(self, n: int) -> list[int]:
        """Return the last n of the ids that are held, or all where there are fewer."""
        length = self.cache.length
        return self._ids[max(0, length - n) : length]

    def feed(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last id of a whole transcript.

        The longest common prefix with what is held is reused; the last id is forwarded
        in any case, so the same transcript twice forwards exactly one. Raises what
        `Model.check` raises, before anything changes.
        """
        with self._alone:
            ids = self.model.check(token_ids)
            shared = min(common_prefix(self.token_ids, ids), len(ids) - 1)
            return self._forward(ids[shared:], shared, reused=shared)

    def extend(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last of some more ids; raises as `feed` does."""
        with self._alone:
            start = self.cache.length
            return self._forward(self.model.check(token_ids, start), start)

    def rewind(self, n: int) -> None:
        """Keep the first n positions; InferenceError unless 0 <= n <= length."""
        with self._alone:
            self.cache.rewind(n)

    def reset(self) -> None:
        """Forget everything: the length becomes 0, nothing is erased or allocated."""
        with self._alone:
            self.cache.length = 0

    def fork(self) -> Session:
        """Return a session that holds the same; from here on each goes its own way.

        No position is forwarded, and none is copied before both have gone on. The
        counters of the new session begin at 0.
        """
        with self._alone:
            other = Session(self.model, self.eos_ids, self.cache.fork())
            other._ids = self.token_ids
            return other

    def _forward(self, ids: list[int], start: int, reused: int = 0) -> Array:
        """Forward ids from position `start`, which may lie before the end."""
        before = self.cache.length
        counts = self.forwarded, self.reused
        try:
            self.cache.length = start
            self._ids[start:] = ids
            hidden = self.model.hidden(ids, self.cache)  # (T, D)
            logits: Array = self.model.logits(hidden[-1:])[0]  # (V,)
            self.forwarded += len(ids)
            self.reused += reused
        except BaseException:
            self.cache.length = before if start == before else 0
            self.forwarded, self.reused = counts
            raise
        return logits


class _OneThread:
    """A block that one thread at a time may be in; InferenceError for any other.

    The same thread may enter again: an interrupt between two lines must not lock out
    the one that was interrupted.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InferenceError(
                "another thread is using this session: give each thread its own, by "
                "engine.session() or by fork() while no thread is inside"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids the two have in common from the start.

    >>> common_prefix([5, 6, 7], [5, 6, 8, 9])
    2
    """
    return sum(1 for _ in takewhile(bool, map(eq, a, b)))
