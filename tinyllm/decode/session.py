"""A sequence of token ids and its cache, which move together: `Session`.

`feed` takes a whole transcript and forwards only what is new, `score` does the same and
returns every row; `rewind` goes back, `fork` copies.

Before: decode.sampling. Next: decode.generate.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import takewhile
from operator import eq

from tinyllm.errors import CacheError, InferenceError
from tinyllm.model.cache import KVCache
from tinyllm.model.layers import Array
from tinyllm.model.transformer import Model


class Session:
    """One sequence of token ids with the cache of their keys and values.

    `forwarded`, `reused` and `rewound` count positions over the session's life. After
    any exception, KeyboardInterrupt included, the session is as if the call had not
    been made, or empty where its old positions were being overwritten. A thread that
    calls while another is inside gets InferenceError.
    """

    def __init__(
        self,
        model: Model,
        cache: KVCache | None = None,
        token_ids: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.cache = KVCache(model.config) if cache is None else cache
        self.forwarded = 0
        self.reused = 0
        self._began_with = self.cache.length
        # Only the first cache.length ids count; those beyond are as meaningless as the
        # cache's slots there. So one assignment to the length moves both.
        self._ids = list(token_ids)
        self._lock = threading.Lock()
        if len(self._ids) != self.cache.length:
            raise CacheError(
                f"the cache has {self.cache.length} positions, and {len(self._ids)} "
                "ids were given for them: use fork() of the session that filled it"
            )

    @property
    def length(self) -> int:
        """Return how many positions are cached."""
        return self.cache.length

    @property
    def n_ctx(self) -> int:
        """Return how many positions the context has."""
        return self.model.config.n_ctx

    @property
    def n_free(self) -> int:
        """Return how many positions of the context are still free."""
        return self.n_ctx - self.length

    @property
    def rewound(self) -> int:
        """Return the number of cached positions discarded so far."""
        return self._began_with + self.forwarded - self.cache.length

    @property
    def token_ids(self) -> list[int]:
        """Return a copy of the ids."""
        return self._ids[: self.cache.length]

    def last(self, n: int) -> list[int]:
        """Return the last n ids, or all of them where there are fewer."""
        length = self.cache.length
        return self._ids[max(0, length - n) : length]

    def feed(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last id of a whole transcript.

        The longest prefix that it shares with the cached ids is reused. The last id is
        forwarded in any case, so the same transcript twice forwards exactly one. Raises
        what `Model.check` raises, before anything changes.
        """
        return self._forward(token_ids, append=False)

    def score(self, token_ids: Sequence[int]) -> Array:
        """Return logits (T, V) after each id that `feed` would forward."""
        return self._forward(token_ids, append=False, every_row=True)

    def extend(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last of some more ids; raises as `feed` does."""
        return self._forward(token_ids, append=True)

    def rewind(self, n: int) -> None:
        """Keep the first n positions; CacheError unless 0 <= n <= length."""
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
        """Return a copy of the session, which forwards nothing; its counters are 0."""
        with self._unused():
            return Session(self.model, self.cache.fork(), self.token_ids)

    def _forward(
        self, token_ids: Sequence[int], append: bool, every_row: bool = False
    ) -> Array:
        """Return logits of a transcript or of more ids: (V,), or every row (T, V).

        The handler is outermost: an interrupt may come when all is done but the return.
        """
        before, overwrites = None, False
        try:
            with self._unused():
                before = self.cache.length, self.forwarded, self.reused
                ids = self.model.check(token_ids, before[0] if append else 0)
                shared = 0 if append else common_prefix(self.token_ids, ids)
                shared = min(shared, len(ids) - 1)  # one id at least is forwarded
                start = before[0] if append else shared
                # slots that are overwritten cannot be given back after a failure
                new, overwrites = ids[shared:], start < before[0]
                self.cache.length = start  # a rewind to the shared prefix
                self._ids[start:] = new  # they count once the model moves the length
                hidden = self.model.hidden(new, self.cache)  # (T, D)
                logits = self.model.logits(hidden if every_row else hidden[-1:])
                self.forwarded += len(new)
                self.reused += shared
                return logits if every_row else logits[0]
        except BaseException:
            if before is not None:
                self.cache.length = 0 if overwrites else before[0]
                self.forwarded, self.reused = before[1:]
            raise

    def _unused(self) -> threading.Lock:
        """Return the lock of the session, or raise if another thread has it.

        Callers use `with` on the lock itself: no interrupt can come between taking the
        lock and entering the block.
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
