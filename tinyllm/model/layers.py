"""The arithmetic of one Llama layer, in the order in which the data flows.

`rms_norm`, `linear`, `rope`, `attention`, `swiglu`. Arrays are float32. T new tokens,
S positions up to the last, D model width, H query heads, K key/value heads, G = H/K
query heads a key/value head, E head width, F hidden width.

A single token may come without the axis T: numpy is quicker on vectors. Exact: a row
among many gets, bit for bit, what it would get alone.

Before: model.config. Next: model.cache.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tinyllm.model.config import Config

Array = NDArray[np.float32]
BLOCK = 64  # query rows attended to at once in fast mode: bounds the score matrix
BLOCK_BYTES = 2**18  # of a matrix that is applied row by row: half of a usual L2 cache


class Weight(Protocol):
    """A matrix (out, in), however it is stored."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (out, in)."""

    def apply(self, x: Array) -> Array:
        """Return x (T, in) times the transposed matrix: (T, out)."""


class Dense:
    """A float32 matrix (out, in), applied row by row (exact) or in one product.

    Exact: one matrix-vector product for each row of x and each block of the matrix. A
    block stays in the processor's cache until all rows are done with it. A row alone
    goes through the same blocks: the same calls, so the same bits.
    """

    def __init__(self, array: Array, exact: bool = True) -> None:
        self.array = np.ascontiguousarray(array, dtype=np.float32)
        self.exact = exact
        self.shape: tuple[int, int] = array.shape
        self._blocks = self.array.reshape(-1, block_rows(*self.shape), self.shape[1])
        self._whole = not exact or len(self._blocks) == 1

    def apply(self, x: Array) -> Array:
        """Return x (T, in) times the transposed matrix: (T, out)."""
        if x.ndim == 1:
            if self._whole:
                return self.array.dot(x)  # type: ignore[no-any-return]
            return np.matmul(self._blocks, x).reshape(-1)  # type: ignore[no-any-return]
        if not self.exact:
            return x @ self.array.T
        # (n, 1, out / n, in) times (T, in, 1) gives (n, T, out / n, 1)
        product = np.matmul(self._blocks[:, None], x[:, :, None])
        return product.swapaxes(0, 1).reshape(len(x), -1)  # type: ignore[no-any-return]


def block_rows(n_out: int, n_in: int) -> int:
    """Return how many rows of a matrix make a block: a divisor of their number.

    It fits `BLOCK_BYTES` and is a multiple of 16, since kernels take several rows at
    once. If no divisor does, all rows make one block.

    >>> block_rows(960, 576), block_rows(701, 576)
    (96, 701)
    """
    most = min(n_out, BLOCK_BYTES // (4 * n_in))
    fitting = (n for n in range(most, 15, -1) if n % 16 == 0 and n_out % n == 0)
    return next(fitting, n_out)


def linear(x: Array, weight: Weight) -> Array:
    """Return x (T, in) times the transposed weight: (T, out). All weights pass here."""
    return weight.apply(x)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Return the rows of x (T, D) divided by their root mean square, times weight (D,).

    Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    n = x.shape[-1]
    if x.ndim == 1:
        return x * (1.0 / math.sqrt(float(x.dot(x)) / n + eps)) * weight
    scale = [1.0 / math.sqrt(s / n + eps) for s in np.vecdot(x, x).tolist()]
    return x * np.array(scale, np.float32)[:, None] * weight


def rope_tables(config: Config) -> tuple[Array, Array]:
    """Return cosines and signed sines of every position: (n_ctx, 2, E/2) each.

    Entry [p, :, i] belongs to the angle p * theta**(-2i/E); the sines of the first
    half are negative. Angles are worked out in float64, once. Su et al. 2021,
    arXiv:2104.09864, with the pairs split into halves as Hugging Face stores them.
    """
    pair = np.arange(0, config.head_dim, 2, dtype=np.float64)
    frequency = config.rope_theta ** (-pair / config.head_dim)  # (E/2,)
    angle = np.outer(np.arange(config.n_ctx), frequency)  # (n_ctx, E/2)
    cos, sin = np.cos(angle), np.sin(angle)
    cosines = np.stack([cos, cos], axis=1).astype(np.float32)  # (n_ctx, 2, E/2)
    sines = np.stack([-sin, sin], axis=1).astype(np.float32)
    return cosines, sines


def rope(x: Array, cos: Array, sin: Array) -> Array:
    """Return x (heads, T, E) rotated by cos and sin, (heads, T, 2, E/2).

    With halves a and b: a cos - b sin, then b cos + a sin.
    """
    halves = x.reshape(cos.shape)  # (heads, T, 2, E/2)
    turned: Array = halves * cos
    turned += halves[..., ::-1, :] * sin
    return turned.reshape(x.shape)  # (heads, T, E)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Return what one position reads: q (H, E) over k and v (K, S, E) gives (H * E,).

    q is already scaled by E**-0.5. Query heads come in groups: the first G read
    key/value head 0. Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1; groups:
    arXiv:2305.13245.
    """
    n_kv_heads, seen, width = k.shape
    grouped = q.reshape(n_kv_heads, -1, width, 1)  # (K, G, E, 1)
    scores = np.matmul(k[:, None], grouped).reshape(-1, seen)  # (H, S)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, scores)
    total = scores.sum(axis=1, keepdims=True)  # (H, 1)
    weights = scores.reshape(n_kv_heads, -1, 1, seen)  # (K, G, 1, S)
    read: Array = np.matmul(weights, v[:, None]).reshape(-1, width)  # (H, E)
    read /= total
    return read.reshape(-1)  # (H * E,)


def attend_rows(q: Array, k: Array, v: Array) -> Array:
    """Return attention of each row over exactly the positions up to its own.

    q (H, T, E) are the last T of the S positions in k, v (K, S, E); gives (T, H * E).
    """
    t, seen = q.shape[1], k.shape[1]
    ends = range(seen - t + 1, seen + 1)
    rows = [attention(q[:, i], k[:, :n], v[:, :n]) for i, n in enumerate(ends)]
    return np.stack(rows)


def attend_blocks(q: Array, k: Array, v: Array) -> Array:
    """Return the same as `attend_rows` up to rounding, `BLOCK` rows at a time."""
    t, seen = q.shape[1], k.shape[1]
    blocks = []
    for i in range(0, t, BLOCK):
        n = min(seen, seen - t + i + BLOCK)
        blocks.append(_attend_block(q[:, i : i + BLOCK], k[:, :n], v[:, :n]))
    return np.concatenate(blocks)


def _attend_block(q: Array, k: Array, v: Array) -> Array:
    (_, t, width), (n_kv_heads, seen, _) = q.shape, k.shape
    grouped = q.reshape(n_kv_heads, -1, t, width)  # (K, G, T, E)
    scores = grouped @ k[:, None].swapaxes(2, 3)  # (K, G, T, S)
    scores[:, :, np.triu(np.ones((t, seen), bool), seen - t + 1)] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    read: Array = np.matmul(scores, v[:, None])  # (K, G, T, E)
    return read.transpose(2, 0, 1, 3).reshape(t, -1)  # (T, H * E)


def swiglu(gate_up: Array) -> Array:
    """Return silu(gate) * up for gate and up side by side: (T, 2F) to (T, F).

    Shazeer 2020, arXiv:2002.05202. silu(g) = g / (1 + exp(-g)), which with h = g/2 is
    h + h tanh(h) and so cannot overflow.
    """
    width = gate_up.shape[-1] // 2
    half = gate_up[..., :width] * 0.5
    gated: Array = np.tanh(half)
    gated *= half
    gated += half
    gated *= gate_up[..., width:]
    return gated
