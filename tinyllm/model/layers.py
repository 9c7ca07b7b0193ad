"""The arithmetic of one Llama layer, in the order in which the data meets it.

`rms_norm`, `linear`, `rope`, `attention`, `swiglu`. Arrays are float32. T new tokens,
S positions held, D model width, H query heads, K key/value heads, G = H/K query heads a
key/value head, E head width, F hidden width.

Exact: each row of T goes through the very calls it would go through alone.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tinyllm.model.config import Config

Array = NDArray[np.float32]
BLOCK = 64  # query rows attended to at once in fast mode: bounds the score matrix


class Weight(Protocol):
    """A matrix (out, in), however it is stored."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (out, in)."""

    def apply(self, x: Array) -> Array:
        """Return x (T, in) times the transposed matrix: (T, out)."""


class Dense:
    """A float32 matrix (out, in), applied row by row (exact) or in one product."""

    def __init__(self, array: Array, exact: bool = True) -> None:
        self.array = np.ascontiguousarray(array, dtype=np.float32)
        self.exact = exact
        self.shape: tuple[int, int] = array.shape  # type: ignore[assignment]

    def apply(self, x: Array) -> Array:
        """Return x (T, in) times the transposed matrix: (T, out)."""
        if len(x) == 1:
            return np.dot(self.array, x[0])[None]  # type: ignore[no-any-return]
        if self.exact:  # one matrix-vector product a row, bit for bit the line above
            return np.matmul(self.array, x[:, :, None])[:, :, 0]  # type: ignore[no-any-return]
        return x @ self.array.T


def linear(x: Array, weight: Weight) -> Array:
    """Return x (T, in) times the transposed weight: (T, out). All weights pass here."""
    return weight.apply(x)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """Return the rows of x (T, D) divided by their root mean square, times weight (D,).

    Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    n = x.shape[1]
    scale = [1.0 / math.sqrt(s / n + eps) for s in np.vecdot(x, x).tolist()]
    if len(scale) == 1:
        return x * scale[0] * weight
    return x * np.array(scale, np.float32)[:, None] * weight


def rope_tables(config: Config) -> tuple[Array, Array]:
    """Return cosines and signed sines of every position: (n_ctx, 1, 2, E/2) each.

    Entry [p, 0, :, i] belongs to the angle p * theta**(-2i/E); the sines of the first
    half are negative. Angles are worked out in float64, once. Su et al. 2021,
    arXiv:2104.09864, with the pairs split into halves as Hugging Face stores them.
    """
    pair = np.arange(0, config.head_dim, 2, dtype=np.float64)
    frequency = config.rope_theta ** (-pair / config.head_dim)  # (E/2,)
    angle = np.outer(np.arange(config.n_ctx), frequency)  # (n_ctx, E/2)
    cos, sin = np.cos(angle), np.sin(angle)
    shape = (config.n_ctx, 1, 2, config.head_dim // 2)
    cosines = np.stack([cos, cos], axis=1).astype(np.float32).reshape(shape)
    sines = np.stack([-sin, sin], axis=1).astype(np.float32).reshape(shape)
    return cosines, sines


def rope(x: Array, cos: Array, sin: Array) -> Array:
    """Return x (T, heads, E) rotated by the rows of the tables for its T positions.

    With halves a and b: a cos - b sin, then b cos + a sin.
    """
    halves = x.reshape(*x.shape[:2], 2, -1)  # (T, heads, 2, E/2)
    turned = halves * cos
    turned += halves[:, :, ::-1] * sin
    return turned.reshape(x.shape)  # (T, heads, E)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Return what one position reads: q (K, G, E) over k and v (K, S, E) is (K, G, E).

    Query heads come in groups: the first G read key/value head 0. Vaswani et al. 2017,
    arXiv:1706.03762, section 3.2.1; groups: arXiv:2305.13245.
    """
    scores = np.matmul(q, k.swapaxes(1, 2))  # (K, G, S)
    scores *= q.shape[-1] ** -0.5
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total = np.add.reduce(scores, axis=-1, keepdims=True)  # (K, G, 1)
    read: Array = np.matmul(scores, v)  # (K, G, E)
    read /= total
    return read


def attend_rows(q: Array, k: Array, v: Array) -> Array:
    """Return attention of each row over exactly the positions up to its own.

    q (T, H, E) are the last T of the S positions in k, v (K, S, E); gives (T, H * E).
    """
    t, heads, width = q.shape
    grouped = q.reshape(t, len(k), -1, width)  # (T, K, G, E)
    first = k.shape[1] - t + 1
    if t == 1:
        return attention(grouped[0], k, v).reshape(1, -1)
    read = np.empty((t, heads * width), np.float32)
    for i in range(t):
        row = attention(grouped[i], k[:, : first + i], v[:, : first + i])
        read[i] = row.reshape(-1)
    return read


def attend_blocks(q: Array, k: Array, v: Array) -> Array:
    """Return the same as `attend_rows` up to rounding, `BLOCK` rows at a time."""
    t, heads, width = q.shape
    first = k.shape[1] - t
    if t == 1:
        return attend_rows(q, k, v)
    read = np.empty((t, heads * width), np.float32)
    for i in range(0, t, BLOCK):
        rows, seen = q[i : i + BLOCK], first + min(i + BLOCK, t)
        read[i : i + BLOCK] = _attend_block(rows, k[:, :seen], v[:, :seen])
    return read


def _attend_block(q: Array, k: Array, v: Array) -> Array:
    (t, _, width), (n_kv_heads, seen, _) = q.shape, k.shape
    grouped = q.reshape(t, n_kv_heads, -1, width).transpose(1, 2, 0, 3)  # (K, G, T, E)
    scores = grouped @ k[:, None].swapaxes(2, 3)  # (K, G, T, S)
    scores *= width**-0.5
    scores[:, :, np.triu(np.ones((t, seen), bool), seen - t + 1)] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    read = scores @ v[:, None]  # (K, G, T, E)
    return read.transpose(2, 0, 1, 3).reshape(t, -1)  # (T, H * E)


def swiglu(gate_up: Array) -> Array:
    """Return silu(gate) * up for gate and up side by side: (T, 2F) to (T, F).

    Shazeer 2020, arXiv:2002.05202; silu(g) is g / (1 + exp(-g)).
    """
    width = gate_up.shape[1] // 2
    gate = gate_up[:, :width]
    gated = np.negative(gate)
    np.exp(gated, out=gated)
    gated += 1.0
    np.divide(gate, gated, out=gated)
    gated *= gate_up[:, width:]
    return gated
