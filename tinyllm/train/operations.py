"""The operations of a Llama, each followed by its backward, derived by hand.

`rotate`, `rms_norm`, `swiglu`, `attention`, `cross_entropy`, in the order of the data.
A forward returns its result and the values that its backward needs; a backward takes
the gradient of the result and returns that of each input. All work in float32 and in
float64. N rows, B batch, T positions, D width, K key heads, G = H/K query heads per key
head, E head width, F hidden width, V vocabulary.

Before: agent.loop. Next: train.backward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tinyllm.model.config import Config
from tinyllm.model.layers import rope_tables

Array = NDArray[Any]  # float32 in training, float64 in checks
BLOCK = 128  # query positions at once: keys after the last of them are left out


class Rope(NamedTuple):
    """Cosine and sine of each position's angles: (T, 1, E/2) each."""

    cos: Array
    sin: Array


def rope_angles(config: Config, n: int, dtype: np.dtype[Any]) -> Rope:
    """Return the rotation of positions 0 to n-1, from the model's own tables."""
    cos, sin = (table[:n, 1:].astype(dtype) for table in rope_tables(config))
    return Rope(cos, sin)  # the second half, where the sines have their own sign


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Return x (B, T, H, E), each pair (i, i + E/2) rotated; -sin rotates it back."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def rms_norm(x: Array, weight: Array, eps: float) -> tuple[Array, Array, Array]:
    """Return the normalised rows (N, D), and x / rms and 1 / rms for the backward."""
    square = np.vecdot(x, x)[:, None] / x.shape[-1]  # (N, 1)
    inverse = 1 / np.sqrt(square + np.asarray(eps, x.dtype))
    unit = x * inverse
    return unit * weight, unit, inverse


def rms_norm_backward(
    dy: Array, unit: Array, inverse: Array, weight: Array
) -> tuple[Array, Array]:
    """Return the gradients in x (N, D) and in the weight of the norm (D,)."""
    dx = dy * weight
    # 1 / rms depends on every x of the row: that part points along the row itself
    dx -= unit * (np.vecdot(dx, unit)[:, None] / unit.shape[-1])
    dx *= inverse
    return dx, np.einsum("nd,nd->d", dy, unit)


def swiglu(gate: Array, up: Array) -> tuple[Array, Array]:
    """Return silu(gate) * up (N, F), and the sigmoid of gate for the backward."""
    sigmoid = np.negative(gate)
    with np.errstate(over="ignore"):  # exp(89) is inf in float32, and 1 / inf is right
        np.exp(sigmoid, out=sigmoid)
    sigmoid += 1
    np.reciprocal(sigmoid, out=sigmoid)
    h = gate * sigmoid
    h *= up
    return h, sigmoid


def swiglu_backward(
    dh: Array, gate: Array, up: Array, sigmoid: Array
) -> tuple[Array, Array]:
    """Return the gradients in gate and in up, (N, F) each."""
    silu = gate * sigmoid
    dup = dh * silu
    slope = silu * (1 - sigmoid)  # silu' = sigmoid + silu (1 - sigmoid)
    slope += sigmoid
    slope *= up
    slope *= dh
    return slope, dup


def attend(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Return the output of the last R of S positions (B, K, G·R, E), and p.

    q is (B, K, G, R, E), scaled, k and v (B, K, S, E); p (B, K, G·R, S) are the
    attention probabilities.
    """
    b, n_kv, g, r, e = q.shape
    p = q.reshape(b, n_kv, -1, e) @ k.swapaxes(-1, -2)  # (B, K, G·R, S)
    ahead = p.reshape(b, n_kv, g, r, -1)[..., -r:]  # (B, K, G, R, R)
    # a position must not read those after it: they are among the last R
    ahead += np.triu(np.full((r, r), -np.inf, p.dtype), 1)
    p -= p.max(-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(-1, keepdims=True)
    return p @ v, p


def attend_backward(
    dout: Array, out: Array, p: Array, q: Array, k: Array, v: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients in q (B, K, G·R, E), k and v (B, K, S, E) of one block."""
    # softmax: ds = p (dp - sum(dp p)), and that sum is dout·out, E wide instead of S
    ds = dout @ v.swapaxes(-1, -2)  # (B, K, G·R, S)
    ds -= np.vecdot(dout, out)[..., None]
    ds *= p
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ dout


def attention(q: Array, k: Array, v: Array) -> tuple[Array, list[Array]]:
    """Return causal attention (B, K, G, T, E), and the probabilities of each block.

    q is (B, K, G, T, E), G query heads per key head, scaled; k, v are (B, K, T, E).
    """
    out, kept = np.empty_like(q), []
    for i in range(0, q.shape[3], BLOCK):
        rows = q[..., i : i + BLOCK, :]  # (B, K, G, R, E)
        visible = i + rows.shape[3]
        read, p = attend(rows, k[:, :, :visible], v[:, :, :visible])
        out[..., i:visible, :] = read.reshape(rows.shape)
        kept.append(p)
    return out, kept


def attention_backward(
    dout: Array, out: Array, kept: list[Array], q: Array, k: Array, v: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients in q, k and v, in their shapes."""
    dq, dk, dv = np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    b, n_kv, _, _, e = q.shape
    for i, p in zip(range(0, q.shape[3], BLOCK), kept, strict=True):
        visible = p.shape[-1]
        dread, read, rows = (
            x[..., i:visible, :].reshape(b, n_kv, -1, e) for x in (dout, out, q)
        )  # (B, K, G·R, E)
        here = k[:, :, :visible], v[:, :, :visible]
        dq_part, dk_part, dv_part = attend_backward(dread, read, p, rows, *here)
        dq[..., i:visible, :] = dq_part.reshape(dq[..., i:visible, :].shape)
        # every block of queries reads these keys, so the gradients add up
        dk[:, :, :visible] += dk_part
        dv[:, :, :visible] += dv_part
    return dq, dk, dv


def cross_entropy(logits: Array, targets: Array) -> tuple[float, Array]:
    """Return the mean loss in nats per token, and its gradient in the logits (N, V)."""
    rows = np.arange(len(targets))
    p = logits - logits.max(-1, keepdims=True)
    picked = p[rows, targets]  # (N,)
    np.exp(p, out=p)
    total = p.sum(-1, keepdims=True)
    loss = float((np.log(total[:, 0]) - picked).mean())
    p /= total * len(targets)
    p[rows, targets] -= 1 / len(targets)  # gradient: softmax minus one-hot, averaged
    return loss, p
