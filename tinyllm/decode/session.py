"""A transcript and its cache, which move together: `Session`.

`feed` takes a whole transcript and forwards only what is new; `rewind` goes back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from operator import eq

from tinyllm.model.cache import KVCache
from tinyllm.model.layers import Array
from tinyllm.model.transformer import Model


class Session:
    """One sequence of token ids with the cache of their keys and values.

    `forwarded` and `reused` count positions over the session's life; `eos_ids` end a
    text. After any exception, KeyboardInterrupt included, the session is as if the call
    had not been made, or empty where its old positions were being overwritten.
    """

    def __init__(self, model: Model, eos_ids: Collection[int] = ()) -> None:
        self.model = model
        self.eos_ids = frozenset(eos_ids)
        self.cache = KVCache(model.config)
        self.forwarded = 0
        self.reused = 0
        # The ids of the first cache.length entries are held; what may stand beyond is
        # as meaningless as the cache's slots there. So both move with one assignment.
        self._ids: list[int] = []

    @property
    def length(self) -> int:
        """Return how many positions are held."""
        return self.cache.length

    @property
    def token_ids(self) -> list[int]:
        """Return a copy of the ids that are held."""
        return self._ids[: self.cache.length]

    @property
    def room(self) -> int:
        """Return how many positions are still free."""
        return self.model.config.n_ctx - self.cache.length

    def feed(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last id of a whole transcript.

        The longest common prefix with what is held is reused; the last id is forwarded
        in any case, so the same transcript twice forwards exactly one. Raises what
        `Model.check` raises, before anything changes.
        """
        ids = self.model.check(token_ids)
        shared = min(common_prefix(self.token_ids, ids), len(ids) - 1)
        logits = self._forward(ids[shared:], shared)
        self.reused += shared
        return logits

    def extend(self, token_ids: Sequence[int]) -> Array:
        """Return logits (V,) after the last of some more ids; raises as `feed` does."""
        start = self.cache.length
        return self._forward(self.model.check(token_ids, start), start)

    def rewind(self, n: int) -> None:
        """Keep the first n positions; InferenceError unless 0 <= n <= length."""
        self.cache.rewind(n)

    def reset(self) -> None:
        """Forget everything: the length becomes 0, nothing is erased or allocated."""
        self.cache.length = 0

    def _forward(self, ids: list[int], start: int) -> Array:
        """Forward ids from position `start`, which may lie before the end."""
        before = self.cache.length
        try:
            self.cache.length = start
            self._ids[start:] = ids
            hidden = self.model.hidden(ids, self.cache)  # (T, D)
            logits: Array = self.model.logits(hidden[-1:])[0]  # (V,)
        except BaseException:
            self.cache.length = before if start == before else 0
            raise
        self.forwarded += len(ids)
        return logits


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids the two have in common from the start.

    >>> common_prefix([5, 6, 7], [5, 6, 8, 9])
    2
    """
    return sum(1 for _ in takewhile(bool, map(eq, a, b)))
