"""The keys and values of the positions seen so far: `KVCache`.

Only the first `length` positions count. Nothing beyond them is ever read, so moving
`length` back forgets without erasing.

Before: model.layers. Next: model.transformer.
"""

from __future__ import annotations

import math
import mmap
from typing import Protocol

import numpy as np

from tinyllm.errors import CacheError, is_int
from tinyllm.model.config import Config
from tinyllm.model.layers import Array


class Sized(Protocol):
    """A model, of which a cache needs to know the sizes."""

    @property
    def config(self) -> Config:
        """Return the sizes."""


class KVCache:
    """The keys and values of one sequence, in arrays that are allocated once.

    `k` and `v` are float32 (L, K, n_ctx, E), of which the first `length` positions
    count; all of them come from one `model`. Raises CacheError without enough memory.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.length = 0
        self.model: object = None  # the one that computed these keys and values
        shape = (config.n_layers, config.n_kv_heads, config.n_ctx, config.head_dim)
        try:
            self.k, self.v = _unwritten(shape), _unwritten(shape)
        except (MemoryError, OSError) as error:
            raise CacheError(
                f"no memory for a context of {config.n_ctx}: load the model with a "
                "smaller n_ctx"
            ) from error

    def claim(self, model: Sized) -> None:
        """Make ready for keys and values of this model.

        Raises CacheError for a model of other sizes, or for one other than that which
        computed what is cached.
        """
        if self.config is not model.config and self.config != model.config:
            raise CacheError("the cache was made for a model of other sizes")
        if self.length and self.model is not model:
            raise CacheError(
                "the cache was filled by another model: give each model its own"
            )
        self.model = model

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        """Store k, v (K, T, E) after the cached ones; return all up to there (K, S, E).

        `length` stays: the model moves it when every layer has been written.
        """
        start, all_k, all_v = self.length, self.k[layer], self.v[layer]
        if k.ndim == 2:  # one position comes without T
            stop = start + 1
            all_k[:, start] = k
            all_v[:, start] = v
        else:
            stop = start + k.shape[1]
            all_k[:, start:stop] = k
            all_v[:, start:stop] = v
        return all_k[:, :stop], all_v[:, :stop]  # (K, S, E)

    def rewind(self, n: int) -> None:
        """Keep the first n positions. Raises CacheError unless 0 <= n <= length."""
        if not is_int(n) or not 0 <= n <= self.length:
            raise CacheError(
                f"cannot rewind to {n!r:.40}: the cache has {self.length} positions, "
                f"so give a whole number from 0 to {self.length}"
            )
        self.length = int(n)

    def fork(self) -> KVCache:
        """Return a copy of the first `length` positions, with arrays of its own."""
        other = KVCache(self.config)
        other.length, other.model = self.length, self.model
        other.k[:, :, : self.length] = self.k[:, :, : self.length]
        other.v[:, :, : self.length] = self.v[:, :, : self.length]
        return other


def _unwritten(shape: tuple[int, ...]) -> Array:
    """Return a new float32 array that takes no memory until it is written.

    numpy would ask for pages of 2 MiB, and the first position of SmolLM2's cache, which
    lies in 180 places, would cost all of 377 MB.
    """
    memory = mmap.mmap(-1, 4 * math.prod(shape))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32).reshape(shape)
