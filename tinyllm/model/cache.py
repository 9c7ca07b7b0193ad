"""The keys and values of the positions seen so far: `KVCache`.

Only the first `length` positions count. Whatever lies beyond is never read, so moving
`length` back forgets without erasing. Forks share an array until their ways part.
"""

from __future__ import annotations

import math
import mmap
import threading
from typing import Protocol

import numpy as np

from tinyllm.errors import InferenceError
from tinyllm.model.config import Config
from tinyllm.model.layers import Array


class Sized(Protocol):
    """A model, of which a cache needs to know the sizes."""

    @property
    def config(self) -> Config:
        """Return the sizes."""


class KVCache:
    """Room for the keys and values of one sequence, allocated once.

    `k` and `v` are float32 (L, K, n_ctx, E); `length` positions of them are held, all
    of one `model`. Raises InferenceError where the memory is not there.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.length = 0
        self.model: object = None  # whose keys and values are held
        self._room = _Room(config)

    @property
    def k(self) -> Array:
        """Return all keys (L, K, n_ctx, E), those that are not held too."""
        return self._room.k

    @property
    def v(self) -> Array:
        """Return all values (L, K, n_ctx, E)."""
        return self._room.v

    def claim(self, model: Sized, n: int) -> None:
        """Make ready to append n positions of this model, which then fills the cache.

        Where a fork may hold what would be overwritten, the positions held are copied
        into a room of their own. Raises InferenceError for a model other than the one
        that filled it, or without memory for the copy; nothing has changed then.
        """
        if self.config is not model.config and self.config != model.config:
            raise InferenceError("the cache was made for a model of other sizes")
        if self.length and self.model is not model:
            raise InferenceError(
                "the cache was filled by another model: give each model its own"
            )
        if self._room.shared and not self._room.claim(self.length, n):
            self._room = self._room.copy(self.config, self.length)
        self.model = model

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        """Store k, v (K, T, E) after what is held; return all up to there (K, S, E).

        `length` stays: the model moves it when every layer has been written. It has
        claimed the positions before.
        """
        start, room = self.length, self._room
        all_k, all_v = room.k[layer], room.v[layer]  # (K, n_ctx, E)
        if k.ndim == 2:
            stop = start + 1
            all_k[:, start] = k
            all_v[:, start] = v
        else:
            stop = start + k.shape[1]
            all_k[:, start:stop] = k
            all_v[:, start:stop] = v
        return all_k[:, :stop], all_v[:, :stop]  # (K, S, E)

    def rewind(self, n: int) -> None:
        """Keep the first n positions. Raises InferenceError unless 0 <= n <= length."""
        whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
        if not whole or not 0 <= n <= self.length:
            raise InferenceError(
                f"cannot rewind to {n!r}: {self.length} positions are held, "
                f"so give a whole number from 0 to {self.length}"
            )
        self.length = int(n)

    def fork(self) -> KVCache:
        """Return a cache that holds the same; what one appends, the other never sees.

        Nothing is copied here. The first of the two to append goes on where it is, the
        other takes a copy of the positions it holds when it appends.
        """
        other = KVCache.__new__(KVCache)
        other.config, other.length, other.model = self.config, self.length, self.model
        other._room = self._room
        self._room.share(self.length)
        return other


class _Room:
    """Arrays that several caches may share: whoever appends claims its slots first.

    Where they are shared, every slot before `end` may be held by a cache.
    """

    def __init__(self, config: Config) -> None:
        shape = (config.n_layers, config.n_kv_heads, config.n_ctx, config.head_dim)
        try:
            self.k, self.v = _unwritten(shape), _unwritten(shape)
        except (MemoryError, OSError) as error:
            raise InferenceError(
                f"no memory for a context of {config.n_ctx}: load the model with a "
                "smaller max_position_embeddings"
            ) from error
        self.shared = False
        self.end = 0
        self._lock = threading.Lock()

    def share(self, length: int) -> None:
        """Note that the first `length` slots belong to one cache more."""
        with self._lock:
            self.end = max(self.end, length) if self.shared else length
            self.shared = True

    def claim(self, start: int, n: int) -> bool:
        """Return whether n slots from `start` were free, and now are the caller's."""
        with self._lock:
            free = start >= self.end
            if free:
                self.end = start + n
            return free

    def copy(self, config: Config, length: int) -> _Room:
        """Return a new room with the first slots copied."""
        other = _Room(config)
        other.k[:, :, :length] = self.k[:, :, :length]
        other.v[:, :, :length] = self.v[:, :, :length]
        return other


def _unwritten(shape: tuple[int, ...]) -> Array:
    """Return a new float32 array that takes no memory where nothing is written.

    numpy would ask for pages of 2 MiB, and the first position of SmolLM2's cache, which
    lies in 180 places, would cost all of 377 MB.
    """
    room = mmap.mmap(-1, 4 * math.prod(shape))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(room, np.float32).reshape(shape)
