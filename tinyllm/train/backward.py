"""The loss of a batch and its gradient in every weight: the model there and back.

`loss_and_gradients(weights, config, tokens, targets)` runs the Llama forward, keeps the
values that the backward needs, then goes through the layers in reverse. N = B·T rows go
through the matrices at once. It works in float32, and in float64 for checking. Weights
are a dict under Hugging Face names.

Before: train.operations. Next: train.optimizer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tinyllm.errors import UsageError
from tinyllm.model.config import Config
from tinyllm.train.operations import (
    Array,
    Rope,
    attention,
    attention_backward,
    cross_entropy,
    rms_norm,
    rms_norm_backward,
    rope_angles,
    rotate,
    swiglu,
    swiglu_backward,
)

Weights = dict[str, Array]


class Shapes(NamedTuple):
    """The sizes of one batch and the reshapes between rows and heads."""

    b: int
    t: int
    kv: int
    e: int

    def split(self, rows: Array) -> Array:
        """Return rows (N, H·E) as heads (B, T, H, E)."""
        return rows.reshape(self.b, self.t, -1, self.e)

    def group(self, x: Array) -> Array:
        """Return (B, T, H, E) as (B, K, G, T, E): heads 0 to G-1 share key head 0."""
        x = x.reshape(self.b, self.t, self.kv, -1, self.e)
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1, 4))

    def rows(self, x: Array) -> Array:
        """Return (B, K, G, T, E) as rows (N, H·E)."""
        return x.transpose(0, 3, 1, 2, 4).reshape(self.b * self.t, -1)


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


def layer_weights(weights: Weights, layer: int) -> Weights:
    """Return the nine arrays of a layer under their short names: "q", "gate", …"""
    prefix = f"model.layers.{layer}."
    return {short: weights[prefix + name] for short, name in LAYER_NAMES.items()}


class Kept(NamedTuple):
    """The values that the forward of one layer keeps for its backward."""

    a: Array  # normalised input (N, D), with unit1 and inverse1
    unit1: Array
    inverse1: Array
    q: Array  # (B, K, G, T, E), rotated and scaled
    k: Array  # (B, K, T, E), rotated
    v: Array
    out: Array  # (B, K, G, T, E)
    p: list[Array]
    mixed: Array  # `out` as rows (N, H·E)
    c: Array  # normalised middle (N, D), with unit2 and inverse2
    unit2: Array
    inverse2: Array
    gate: Array  # (N, F), as are up, h and sigmoid
    up: Array
    h: Array
    sigmoid: Array


def block(
    x: Array, w: Weights, rope: Rope, s: Shapes, eps: float
) -> tuple[Array, Kept]:
    """Return the rows (N, D) after one layer, and what its backward needs."""
    a, unit1, inverse1 = rms_norm(x, w["norm1"], eps)
    q = s.group(rotate(s.split(a @ w["q"].T), *rope))  # (B, K, G, T, E)
    q *= np.asarray(s.e**-0.5, q.dtype)
    k = s.group(rotate(s.split(a @ w["k"].T), *rope))[:, :, 0]  # (B, K, T, E)
    v = s.group(s.split(a @ w["v"].T))[:, :, 0]  # (B, K, T, E)
    out, p = attention(q, k, v)
    mixed = s.rows(out)  # (N, H·E)
    x = x + mixed @ w["o"].T
    c, unit2, inverse2 = rms_norm(x, w["norm2"], eps)
    gate, up = c @ w["gate"].T, c @ w["up"].T  # (N, F)
    h, sigmoid = swiglu(gate, up)
    attended = (a, unit1, inverse1, q, k, v, out, p, mixed)
    kept = Kept(*attended, c, unit2, inverse2, gate, up, h, sigmoid)
    return x + h @ w["down"].T, kept


def block_backward(
    dx: Array, kept: Kept, w: Weights, rope: Rope, s: Shapes
) -> tuple[Array, Weights]:
    """Return the gradients in a layer's input (N, D) and in its nine weights."""
    g: Weights = {"down": dx.T @ kept.h}
    dgate, dup = swiglu_backward(dx @ w["down"], kept.gate, kept.up, kept.sigmoid)
    g["gate"], g["up"] = dgate.T @ kept.c, dup.T @ kept.c
    dc = dgate @ w["gate"] + dup @ w["up"]  # (N, D)
    dc, g["norm2"] = rms_norm_backward(dc, kept.unit2, kept.inverse2, w["norm2"])
    dx = dx + dc  # the residual: one way around the block, one through it
    g["o"] = dx.T @ kept.mixed
    heads = heads_backward(dx @ w["o"], kept, rope, s)
    da = np.zeros_like(dx)
    for name, rows in zip("qkv", heads, strict=True):
        g[name] = rows.T @ kept.a
        da += rows @ w[name]
    da, g["norm1"] = rms_norm_backward(da, kept.unit1, kept.inverse1, w["norm1"])
    return dx + da, g


def heads_backward(
    dmixed: Array, kept: Kept, rope: Rope, s: Shapes
) -> tuple[Array, Array, Array]:
    """Return gradients in the rows of q (N, H·E), k and v (N, K·E), not rotated."""
    dout = s.group(s.split(dmixed))  # (B, K, G, T, E)
    dq, dk, dv = attention_backward(dout, kept.out, kept.p, kept.q, kept.k, kept.v)
    dq *= np.asarray(s.e**-0.5, dq.dtype)
    rows = [s.rows(x) for x in (dq, dk[:, :, None], dv[:, :, None])]
    # the inverse of a rotation is its transpose, and that is the backward
    q, k = (rotate(s.split(x), rope.cos, -rope.sin) for x in rows[:2])
    return q.reshape(rows[0].shape), k.reshape(rows[1].shape), rows[2]


def loss_and_gradients(
    weights: Weights, config: Config, tokens: Array, targets: Array
) -> tuple[float, Weights]:
    """Return the loss of tokens -> targets (int, (B, T) each), and all gradients.

    UsageError unless the output head is the embedding, as the embedded model's is.
    """
    if not config.tied_embeddings:
        raise UsageError("only models with tied embeddings can be trained")
    embed, eps = weights["model.embed_tokens.weight"], config.norm_eps
    b, t = tokens.shape
    s = Shapes(b, t, config.n_kv_heads, config.head_dim)
    rope = rope_angles(config, t, embed.dtype)
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
    dembed = dlogits.T @ y  # (V, D), as the output head: the embedding is both
    np.add.at(dembed, tokens.ravel(), dx)  # a token that occurs twice counts twice
    grads["model.embed_tokens.weight"] = dembed
    return loss, grads
