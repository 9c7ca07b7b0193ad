"""The two ways to store the rows that RoPE turns in pairs, and how to change between.

INTERLEAVED: rows 2i and 2i + 1 of a head are a pair (llama2.c, GGUF, the paper).
HALVES: rows i and i + E/2 are (Hugging Face, and the forward pass of this package). The
same model in the wrong layout says a few right words, then nonsense.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

INTERLEAVED, HALVES = "interleaved pairs", "split halves"


def to_halves(weight: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Return the rows (n_heads * E, D) of interleaved pairs as split halves.

    Rows 0 1 2 3 of a head become 0 2 1 3. `n_heads` is K, not H, for the keys.
    """
    rows, width = weight.shape
    half = rows // n_heads // 2  # E/2
    pairs = weight.reshape(n_heads, half, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)  # (heads * E, D)


def to_interleaved(weight: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Return the rows (n_heads * E, D) of split halves as interleaved pairs."""
    rows, width = weight.shape
    half = rows // n_heads // 2  # E/2
    halves = weight.reshape(n_heads, 2, half, width)
    return halves.swapaxes(1, 2).reshape(rows, width)  # (heads * E, D)
