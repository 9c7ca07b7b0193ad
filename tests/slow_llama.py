"""A Llama by explicit loops in float64: slow, obvious, no code of the package in it."""

from __future__ import annotations

import math

import numpy as np


def slow_logits(config, weights, token_ids):
    """Return logits (T, V), worked out one position and one head at a time."""
    w = {name: array.astype(np.float64) for name, array in weights.items()}
    rows = [w["model.embed_tokens.weight"][i] for i in token_ids]
    for n in range(config.n_layers):
        prefix = f"model.layers.{n}."
        layer = {k[len(prefix) :]: a for k, a in w.items() if k.startswith(prefix)}
        rows = attend(config, layer, rows)
        rows = [x + mlp(config, layer, x) for x in rows]
    head = "model.embed_tokens" if config.tied_embeddings else "lm_head"
    normed = [norm(config, x, w["model.norm.weight"]) for x in rows]
    return np.stack([w[head + ".weight"] @ x for x in normed])


def norm(config, x, weight):
    return x / math.sqrt(sum(x * x) / len(x) + config.norm_eps) * weight


def turn(config, x, position):
    """Rotate a head (E,): entry i pairs with entry i + E/2."""
    out, half = x.copy(), config.head_dim // 2
    for i in range(half):
        angle = position * config.rope_theta ** (-2 * i / config.head_dim)
        a, b = x[i], x[i + half]
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def attend(config, layer, rows):
    """Return the rows after attention; query head h reads key/value head h // group."""
    group = config.n_heads // config.n_kv_heads
    keys, values, out = [], [], []
    for position, x in enumerate(rows):
        h = norm(config, x, layer["input_layernorm.weight"])
        products = [layer[f"self_attn.{name}_proj.weight"] @ h for name in "qkv"]
        q, k, v = (y.reshape(-1, config.head_dim) for y in products)
        keys.append([turn(config, head, position) for head in k])
        values.append(v)
        read = []
        for head in range(config.n_heads):
            query = turn(config, q[head], position)
            scores = np.array([query @ key[head // group] for key in keys])
            p = np.exp(scores / math.sqrt(config.head_dim))
            p /= p.sum()
            read.append(sum(p[s] * values[s][head // group] for s in range(len(p))))
        out.append(x + layer["self_attn.o_proj.weight"] @ np.concatenate(read))
    return out


def mlp(config, layer, x):
    h = norm(config, x, layer["post_attention_layernorm.weight"])
    gate, up = layer["mlp.gate_proj.weight"] @ h, layer["mlp.up_proj.weight"] @ h
    return layer["mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
