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
        token_ids: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.eos_ids = frozenset(eos_ids)
        self.cache = KVCache(model.config) if cache is None else cache
        self.forwarded = 0
        self.reused = 0
        self._began_with = self.cache.length
        # The ids of the first cache.length entries are held; what may stand beyond is
        # as meaningless as the cache's slots there. So both move with one assignment.
        self._ids = list(token_ids)
        self._lock = threading.Lock()
        if len(self._ids) != self.cache.length:
            raise InferenceError(
                f"the cache holds {self.cache.length} positions, and {len(self._ids)} "
                "ids were given for them: use fork() of the session that filled it"
            )

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
        return self._forward(token_ids, whole=True)

    def extend(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last of some more ids; raises as `feed` does."""
        return self._forward(token_ids, whole=False)

    def rewind(self, n: int) -> None:
        """Keep the first n positions; InferenceError unless 0 <= n <= length."""
        before = None
        try:
            with self._unused():
                before = self.cache.length
                self.cache.rewind(n)
        except BaseException:
            if before is not None:
                self.cache.length = before
            raise

    def reset(self) -> None:
        """Forget everything: the length becomes 0, nothing is erased or allocated."""
        with self._unused():
            self.cache.length = 0

    def fork(self) -> Session:
        """Return a session that holds the same; from here on each goes its own way.

        No position is forwarded, and none is copied before both have gone on. The
        counters of the new session begin at 0.
        """
        with self._unused():
            return Session(self.model, self.eos_ids, self.cache.fork(), self.token_ids)

    def _forward(self, token_ids: Sequence[int], whole: bool) -> Array:
        """Forward ids: a whole transcript, or some more.

        The handler is outermost: an interrupt may come when all is done but the return.
        """
        before, overwrites = None, False
        try:
            with self._unused():
                before = self.cache.length, self.forwarded, self.reused
                ids = self.model.check(token_ids, 0 if whole else before[0])
                shared = common_prefix(self.token_ids, ids) if whole else 0
                shared = min(shared, len(ids) - 1)
                start = shared if whole else before[0]
                new, overwrites = ids[shared:], start < before[0]
                self.cache.length = start
                self._ids[start:] = new
                hidden = self.model.hidden(new, self.cache)  # (T, D)
                logits: Array = self.model.logits(hidden[-1:])[0]  # (V,)
                self.forwarded += len(new)
                self.reused += shared
                return logits
        except BaseException:
            if before is not None:
                self.cache.length = 0 if overwrites else before[0]
                self.forwarded, self.reused = before[1:]
            raise

    def _unused(self) -> threading.Lock:
        """Return the lock of the session, unless another thread has it.

        A `with` on the lock itself, since an interrupt cannot come between its taking
        and the block, or between the block and its release.
        """
        if self._lock.locked():
            raise InferenceError(
                "another thread is using this session: give each thread its own, by "
                "engine.session() or by fork() while no thread is inside"
            )
        return self._lock


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids the two have in common from the start.

    >>> common_prefix([5, 6, 7], [5, 6, 8, 9])
    2
    """
    return sum(1 for _ in takewhile(bool, map(eq, a, b)))
