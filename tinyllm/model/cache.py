"""The keys and values of the positions seen so far: `KVCache`.

Only the first `length` positions count. Whatever lies beyond is never read, so moving
`length` back forgets without erasing.
"""

from __future__ import annotations

import math
import mmap

import numpy as np

from tinyllm.errors import InferenceError
from tinyllm.model.config import Config
from tinyllm.model.layers import Array


class KVCache:
    """Room for the keys and values of one sequence, allocated once.

    `k` and `v` are float32 (L, K, n_ctx, E); `length` positions of them are held, all
    of one `model`. Raises InferenceError where the memory is not there.
    """

    def __init__(self, config: Config) -> None:
        shape = (config.n_layers, config.n_kv_heads, config.n_ctx, config.head_dim)
        self.config = config
        try:
            self.k, self.v = _unwritten(shape), _unwritten(shape)
        except (MemoryError, OSError) as error:
            raise InferenceError(
                f"no memory for a context of {config.n_ctx}: load the model with a "
                "smaller max_position_embeddings"
            ) from error
        self.length = 0
        self.model: object = None  # whose keys and values are held

    def write(self, layer: int, start: int, k: Array, v: Array) -> tuple[Array, Array]:
        """Store k, v (K, T, E) from position `start`; return all up to there (K, S, E).

        `length` stays: the model moves it when every layer has been written.
        """
        all_k, all_v = self.k[layer], self.v[layer]  # (K, n_ctx, E)
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
        if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n <= self.length:
            raise InferenceError(
                f"cannot rewind to {n!r}: {self.length} positions are held, "
                f"so give a whole number from 0 to {self.length}"
            )
        self.length = n


def _unwritten(shape: tuple[int, ...]) -> Array:
    """Return a new float32 array that takes no memory where nothing is written.

    numpy would ask for pages of 2 MiB, and the first position of SmolLM2's cache, which
    lies in 180 places, would cost all of 377 MB.
    """
    room = mmap.mmap(-1, 4 * math.prod(shape))
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(room, np.float32).reshape(shape)
