"""The loss of a batch and its gradient in every weight, derived by hand.

`loss_and_gradients(weights, config, tokens, targets)` runs the Llama forward, keeping
what the way back needs, then walks it in reverse. One function an operation, each
followed by its backward; N = B·T rows go through the matrices at once. Works in
float32, and in float64 for checking. Weights are a dict under Hugging Face names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tinyllm.model.config import Config

Array = np.ndarray
Weights = dict[str, Array]


class Rope(NamedTuple):
    """Cosine and sine of each position's angles: (T, 1, E/2) each."""

    cos: Array
    sin: Array


def rope_angles(config: Config, n: int, dtype: np.dtype) -> Rope:
    """The rotation of positions 0 to n-1. Source: Su et al. 2021, RoFormer, 3.2."""
    half = np.arange(0, config.head_dim, 2) / config.head_dim
    angles = np.outer(np.arange(n), config.rope_theta**-half)[:, None]  # (T, 1, E/2)
    return Rope(np.cos(angles).astype(dtype), np.sin(angles).astype(dtype))


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """x (B, T, H, E) with each pair (i, i + E/2) turned; -sin turns it back."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def rms_norm(x: Array, weight: Array, eps: float) -> tuple[Array, Array, Array]:
    """The normalised rows (N, D), with x / rms and 1 / rms for the way back."""
    inverse = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.asarray(eps, x.dtype))
    unit = x * inverse
    return unit * weight, unit, inverse


def rms_norm_backward(
    dy: Array, unit: Array, inverse: Array, weight: Array
) -> tuple[Array, Array]:
    """Gradients in x (N, D) and in the norm's weight (D,)."""
    dunit = dy * weight
    along = (dunit * unit).mean(-1, keepdims=True)
    return inverse * (dunit - unit * along), (dy * unit).sum(0)


def swiglu(gate: Array, up: Array) -> tuple[Array, Array]:
    """silu(gate) * up (N, F), with the sigmoid of gate for the way back."""
    sigmoid = 1 / (1 + np.exp(-gate))
    return gate * sigmoid * up, sigmoid


def swiglu_backward(
    dh: Array, gate: Array, up: Array, sigmoid: Array
) -> tuple[Array, Array]:
    """Gradients in gate and in up, (N, F) each."""
    silu = gate * sigmoid
    return dh * up * (sigmoid + silu * (1 - sigmoid)), dh * silu


def attention(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Causal attention: output (B, K, G·T, E) and the probabilities (B, K, G·T, T).

    q is (B, K, G·T, E), the G query heads of one key head stacked; k, v (B, K, T, E).
    """
    t = k.shape[2]
    p = q @ k.swapaxes(-1, -2)  # (B, K, G·T, T)
    p *= np.asarray(q.shape[-1] ** -0.5, p.dtype)
    by_head = p.reshape(*p.shape[:2], -1, t, t)  # (B, K, G, T, T)
    by_head += np.triu(np.full((t, t), -np.inf, p.dtype), 1)
    p -= p.max(-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(-1, keepdims=True)
    return p @ v, p


def attention_backward(
    dout: Array, out: Array, p: Array, q: Array, k: Array, v: Array
) -> tuple[Array, Array, Array]:
    """Gradients in q, k and v. Row sums of dp·p are those of dout·out: E, not T, wide."""
    dv = p.swapaxes(-1, -2) @ dout
    ds = dout @ v.swapaxes(-1, -2)  # (B, K, G·T, T)
    ds -= (dout * out).sum(-1, keepdims=True)
    ds *= p
    ds *= np.asarray(q.shape[-1] ** -0.5, p.dtype)
    return ds @ k, ds.swapaxes(-1, -2) @ q, dv


class Shapes(NamedTuple):
    """The sizes of one batch and the reshapes between rows and heads."""

    b: int
    t: int
    kv: int
    e: int

    def split(self, rows: Array) -> Array:
        """(N, H·E) -> (B, T, H, E)."""
        return rows.reshape(self.b, self.t, -1, self.e)

    def group(self, x: Array) -> Array:
        """(B, T, H, E) -> (B, K, G·T, E), the heads of one group stacked."""
        x = x.reshape(self.b, self.t, self.kv, -1, self.e).transpose(0, 2, 3, 1, 4)
        return np.ascontiguousarray(x).reshape(self.b, self.kv, -1, self.e)

    def ungroup(self, x: Array) -> Array:
        """(B, K, G·T, E) -> (B, T, H, E), the inverse of `group`."""
        x = x.reshape(self.b, self.kv, -1, self.t, self.e).transpose(0, 3, 1, 2, 4)
        return np.ascontiguousarray(x).reshape(self.b, self.t, -1, self.e)

    def rows(self, x: Array) -> Array:
        """(B, T, H, E) -> (N, H·E)."""
        return x.reshape(self.b * self.t, -1)


def layer_weights(weights: Weights, layer: int) -> Weights:
    """The nine arrays of one layer under their short names: "q", "gate", …"""
    prefix = f"model.layers.{layer}."
    return {short: weights[prefix + name] for short, name in LAYER_NAMES.items()}


LAYER_NAMES = {
    "norm1": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "norm2": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def block(
    x: Array, w: Weights, rope: Rope, s: Shapes, eps: float
) -> tuple[Array, dict[str, Array]]:
    """One layer: rows (N, D) -> rows (N, D), with what its backward needs."""
    a, unit1, inverse1 = rms_norm(x, w["norm1"], eps)
    q = s.group(rotate(s.split(a @ w["q"].T), *rope))  # (B, K, G·T, E)
    k = s.group(rotate(s.split(a @ w["k"].T), *rope))  # (B, K, T, E)
    v = s.group(s.split(a @ w["v"].T))  # (B, K, T, E)
    out, p = attention(q, k, v)
    mixed = s.rows(s.ungroup(out))  # (N, H·E)
    x = x + mixed @ w["o"].T
    c, unit2, inverse2 = rms_norm(x, w["norm2"], eps)
    gate, up = c @ w["gate"].T, c @ w["up"].T  # (N, F)
    h, sigmoid = swiglu(gate, up)
    names = "a unit1 inverse1 q k v out p mixed c unit2 inverse2 gate up h sigmoid"
    here = locals()
    return x + h @ w["down"].T, {name: here[name] for name in names.split()}


def block_backward(
    dx: Array, kept: dict[str, Array], w: Weights, rope: Rope, s: Shapes
) -> tuple[Array, Weights]:
    """The gradient in a layer's input (N, D), and in its nine weights."""
    g: Weights = {"down": dx.T @ kept["h"]}
    dgate, dup = swiglu_backward(
        dx @ w["down"], kept["gate"], kept["up"], kept["sigmoid"]
    )
    g["gate"], g["up"] = dgate.T @ kept["c"], dup.T @ kept["c"]
    dc = dgate @ w["gate"] + dup @ w["up"]  # (N, D)
    dc, g["norm2"] = rms_norm_backward(dc, kept["unit2"], kept["inverse2"], w["norm2"])
    dx = dx + dc
    g["o"] = dx.T @ kept["mixed"]
    dout = s.group(s.split(dx @ w["o"]))  # (B, K, G·T, E)
    heads = attention_backward(dout, *(kept[n] for n in ("out", "p", "q", "k", "v")))
    dq, dk, dv = (s.ungroup(d) for d in heads)  # (B, T, H or K, E)
    back = (rotate(dq, rope.cos, -rope.sin), rotate(dk, rope.cos, -rope.sin), dv)
    da = np.zeros_like(dx)
    for name, rows in zip("qkv", map(s.rows, back), strict=True):
        g[name] = rows.T @ kept["a"]
        da += rows @ w[name]
    da, g["norm1"] = rms_norm_backward(da, kept["unit1"], kept["inverse1"], w["norm1"])
    return dx + da, g


def cross_entropy(logits: Array, targets: Array) -> tuple[float, Array]:
    """The mean loss in nats a token, and its gradient in the logits (N, V)."""
    rows = np.arange(len(targets))
    p = logits - logits.max(-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(-1, keepdims=True)
    loss = float(-np.log(p[rows, targets]).mean())
    p[rows, targets] -= 1
    p /= len(targets)
    return loss, p


def loss_and_gradients(
    weights: Weights, config: Config, tokens: Array, targets: Array
) -> tuple[float, Weights]:
    """The loss of tokens -> targets (int, (B, T) each), and the gradient per weight.

    The output head must be tied to the embedding, as the embedded model's is.
    """
    embed, eps = weights["model.embed_tokens.weight"], config.norm_eps
    s = Shapes(*tokens.shape, config.n_kv_heads, config.head_dim)
    rope = rope_angles(config, s.t, embed.dtype)
    x, kept = embed[tokens.ravel()], []  # (N, D)
    for layer in range(config.n_layers):
        x, saved = block(x, layer_weights(weights, layer), rope, s, eps)
        kept.append(saved)
    y, unit, inverse = rms_norm(x, weights["model.norm.weight"], eps)
    loss, dlogits = cross_entropy(y @ embed.T, targets.ravel())
    grads: Weights = {}
    dx, grads["model.norm.weight"] = rms_norm_backward(
        dlogits @ embed, unit, inverse, weights["model.norm.weight"]
    )
    for layer in reversed(range(config.n_layers)):
        dx, g = block_backward(dx, kept.pop(), layer_weights(weights, layer), rope, s)
        grads |= {f"model.layers.{layer}.{LAYER_NAMES[n]}": g[n] for n in g}
    dembed = dlogits.T @ y  # (V, D), the head's part
    np.add.at(dembed, tokens.ravel(), dx)
    grads["model.embed_tokens.weight"] = dembed
    return loss, grads
