"""Look inside a forward pass: `trace` runs one and keeps every state and weight.

The layers are walked as `Model.hidden` walks them, with the same functions and the
model's own weights. Only the attention weights are computed as a whole matrix, and the
pass goes on from their result. So equal logits show that they are the real ones.

Before: model.transformer. Next: decode.sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinyllm.errors import InferenceError
from tinyllm.model.layers import Array, linear, rms_norm, rope, swiglu
from tinyllm.model.transformer import Layer, Model

LARGEST = 2**26  # attention weights that are kept: 256 MiB


@dataclass(frozen=True)
class Trace:
    """The states and attention weights of one forward pass of T ids, as float32.

    `states` (L + 1, T, D) is the residual stream before each layer and after the last;
    `attention` (L, H, T, T) the weights, a row for each reader, 0 above the diagonal;
    `logits` (T, V).
    """

    token_ids: tuple[int, ...]
    states: Array
    attention: Array
    logits: Array


def trace(model: Model, token_ids: Sequence[int]) -> Trace:
    """Return the trace of these ids from position 0.

    Raises InvalidTokenError, PromptTooShortError or ContextFullError, as the model
    does, and InferenceError for more attention weights than `LARGEST`.
    """
    ids = model.check(token_ids)
    kept = model.config.n_layers * model.config.n_heads * len(ids) ** 2
    if kept > LARGEST:
        raise InferenceError(
            f"the trace of {len(ids)} ids has {kept:,} attention weights, more than "
            f"{LARGEST:,}: give fewer ids"
        )
    eps = model.config.norm_eps
    x: Array = model.embedding[ids]  # (T, D)
    states, patterns = [x], []
    for layer in model.layers:
        read, weights = _attend(model, layer, rms_norm(x, layer.attention_norm, eps))
        x = x + linear(read, layer.out)
        hidden = rms_norm(x, layer.mlp_norm, eps)
        x = x + linear(swiglu(linear(hidden, layer.gate_up)), layer.down)
        states.append(x)
        patterns.append(weights)
    logits = model.logits(rms_norm(x, model.norm, eps))  # (T, V)
    return Trace(tuple(ids), np.stack(states), np.stack(patterns), logits)


def attention_weights(q: Array, k: Array) -> Array:
    """Return how much each position reads from those before it and from itself.

    q (H, T, E), already scaled, and k (K, T, E) give (H, T, T): a row for each reader,
    which sums to 1. Later positions have weight 0.
    """
    n = q.shape[1]
    keys = np.repeat(k, len(q) // len(k), axis=0)  # (H, T, E), in order h0 h0 h1 h1
    scores = q @ keys.swapaxes(1, 2)  # (H, T, T)
    scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    weights: Array = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _attend(model: Model, layer: Layer, x: Array) -> tuple[Array, Array]:
    """Return what the heads read (T, H * E), and their weights (H, T, T)."""
    config, n = model.config, len(x)
    n_q, n_turned = config.n_heads, config.n_heads + config.n_kv_heads
    qkv = linear(x, layer.qkv).reshape(n, -1, config.head_dim)  # (T, H + 2K, E)
    heads = qkv.swapaxes(0, 1)  # (H + 2K, T, E)
    shape = (n_turned, n, 2, config.head_dim // 2)  # one position comes without T
    cos, sin = (table.reshape(shape) for table in model.rotation(0, n))
    turned = rope(heads[:n_turned], cos, sin)  # (H + K, T, E)
    weights = attention_weights(turned[:n_q], turned[n_q:])
    values = np.repeat(heads[n_turned:], n_q // config.n_kv_heads, axis=0)  # (H, T, E)
    return (weights @ values).swapaxes(0, 1).reshape(n, -1), weights  # (T, H * E)
