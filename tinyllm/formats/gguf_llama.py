"""The Llama in a GGUF file: its `config_of`, and its `weights_of`.

GGUF has names of its own for sizes and weights, and keeps the rows of q and k as
interleaved pairs. What would change a number and is not done here is refused by name.
Source: ggml, docs/gguf.md; the names of tensors are those of llama.cpp.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tinyllm.errors import CheckpointError
from tinyllm.formats.gguf import GGUF
from tinyllm.formats.tensor import Stored
from tinyllm.model.config import Config, weight_shapes

SIZES = {
    "dim": "llama.embedding_length",
    "hidden_dim": "llama.feed_forward_length",
    "n_layers": "llama.block_count",
    "n_heads": "llama.attention.head_count",
    "n_ctx": "llama.context_length",
}
KV_HEADS = "llama.attention.head_count_kv"
KEY, VALUE = "llama.attention.key_length", "llama.attention.value_length"
ROTATED = "llama.rope.dimension_count"
THETA, EPS = "llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"
SCALING = "llama.rope.scaling.type"
# What a file may ask for that this forward pass does not do, with the value that asks
# for nothing.
UNSUPPORTED: dict[str, Any] = {
    "split.count": 1,
    "llama.expert_count": 0,
    "llama.use_parallel_residual": False,
    "llama.logit_scale": 1.0,
    "llama.embedding_scale": 1.0,
    "llama.residual_scale": 1.0,
    "llama.attn_logit_softcapping": 0.0,
    "llama.final_logit_softcapping": 0.0,
    "llama.attention.causal": True,
    "llama.attention.clamp_kqv": 0.0,
    "llama.attention.max_alibi_bias": 0.0,
    "llama.attention.sliding_window": 0,
}
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
OUTER = {
    EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    HEAD: "lm_head.weight",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def config_of(gguf: GGUF) -> Config:
    """Return the config of the Llama in a file.

    Raises CheckpointError naming the key that is missing, wrong or not supported.
    """
    architecture = gguf.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture != "llama":
        raise CheckpointError(
            f"{gguf.name}: general.architecture is {architecture!r:.40}; "
            "only 'llama' is supported"
        )
    _refuse_unsupported(gguf)
    missing = [key for key in (*SIZES.values(), EPS) if key not in gguf.metadata]
    if missing:
        raise CheckpointError(f"{gguf.name} lacks the metadata {', '.join(missing)}")
    sizes = {name: _size(gguf, key) for name, key in SIZES.items()}
    n_kv_heads = _size(gguf, KV_HEADS, sizes["n_heads"])
    head_dim = _head_dim(gguf, sizes["dim"], sizes["n_heads"])
    vocab_size, norm_eps = _vocab_size(gguf), _number(gguf, EPS)
    rope_theta = _number(gguf, THETA, 10000.0)
    try:
        return Config(
            **sizes,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            vocab_size=vocab_size,
            rope_theta=rope_theta,
            norm_eps=norm_eps,
            tied_embeddings=HEAD not in gguf.tensors,
        )
    except CheckpointError as error:
        raise CheckpointError(f"{gguf.name}: {error}") from None


def weights_of(gguf: GGUF, config: Config) -> dict[str, Stored]:
    """Return the weights under Hugging Face's names, still in the file.

    q and k become split halves when they are decoded. Raises CheckpointError for a
    tensor that is missing, misshapen or has no place in a plain Llama.
    """
    shapes, names = weight_shapes(config), _names(config.n_layers)
    _refuse_others(gguf, {n for n, weight in names.items() if weight in shapes})
    weights = {}
    for name, weight in names.items():
        if weight not in shapes:  # the head of a tied model
            continue
        if name not in gguf.tensors:
            raise CheckpointError(
                f"{gguf.name} lacks the tensor {name!r} of shape {shapes[weight]}"
            )
        stored = gguf.tensors[name]
        if stored.shape != shapes[weight]:
            raise CheckpointError(
                f"{gguf.name}: tensor {name!r} has shape {stored.shape}; "
                f"expected {shapes[weight]}"
            )
        weights[weight] = replace(stored, interleaved=_turned_heads(name, config))
    return weights


def _names(n_layers: int) -> dict[str, str]:
    """Return Hugging Face's name of each tensor, by the name in the file."""
    names = dict(OUTER)
    for i in range(n_layers):
        for inner, weight in LAYER.items():
            names[f"blk.{i}.{inner}.weight"] = f"model.layers.{i}.{weight}.weight"
    return names


def _turned_heads(name: str, config: Config) -> int:
    """Return how many heads of a tensor RoPE turns: K for the keys, 0 for most."""
    if name.endswith("attn_q.weight"):
        return config.n_heads
    return config.n_kv_heads if name.endswith("attn_k.weight") else 0


def _refuse_others(gguf: GGUF, known: set[str]) -> None:
    if "rope_freqs.weight" in gguf.tensors:
        raise CheckpointError(
            f"{gguf.name}: tensor 'rope_freqs.weight' scales the rotation: "
            "not supported"
        )
    for name in gguf.tensors:
        if name not in known:
            raise CheckpointError(
                f"{gguf.name}: tensor {name!r} has no place in a plain Llama of the "
                "sizes in its metadata"
            )


def _refuse_unsupported(gguf: GGUF) -> None:
    scaled = [k for k in gguf.metadata if k.startswith("llama.rope.scal")]
    if scaled and _single(gguf, SCALING) != "none":
        raise CheckpointError(
            f"{gguf.name}: {scaled[0]} is {gguf.metadata[scaled[0]]!r:.40}: a scaled "
            f"rotation is not supported, only {SCALING} 'none'"
        )
    for key, plain in UNSUPPORTED.items():
        value = _single(gguf, key, plain)
        if value != plain:
            raise CheckpointError(
                f"{gguf.name}: {key} is {value!r:.40}; only {plain!r} is supported"
            )


def _single(gguf: GGUF, key: str, default: Any = None) -> Any:
    """Return a value that must not be an array."""
    value = gguf.metadata.get(key, default)
    if isinstance(value, (list, np.ndarray)):
        raise CheckpointError(f"{gguf.name}: {key} is an array; expected one value")
    return value


def _size(gguf: GGUF, key: str, default: int | None = None) -> int:
    value = _single(gguf, key, default)
    if type(value) is not int or value < 1:
        raise CheckpointError(
            f"{gguf.name}: {key} is {value!r:.40}; expected a whole number above 0"
        )
    return value


def _number(gguf: GGUF, key: str, default: float | None = None) -> float:
    value = _single(gguf, key, default)
    if type(value) not in (int, float):
        raise CheckpointError(f"{gguf.name}: {key} is {value!r:.40}, not a number")
    return float(value)


def _head_dim(gguf: GGUF, dim: int, n_heads: int) -> int:
    """Return the width of a head, on which everything said of it must agree."""
    if KEY not in gguf.metadata and dim % n_heads:
        raise CheckpointError(
            f"{gguf.name}: {SIZES['dim']} {dim} is not a multiple of "
            f"{SIZES['n_heads']} {n_heads}, and there is no {KEY}"
        )
    head_dim = _size(gguf, KEY, dim // n_heads)
    for key in (VALUE, ROTATED):
        if _size(gguf, key, head_dim) != head_dim:
            raise CheckpointError(
                f"{gguf.name}: {key} is {gguf.metadata[key]}; only the width of a "
                f"head, {head_dim}, is supported"
            )
    return head_dim


def _vocab_size(gguf: GGUF) -> int:
    """Return the number of rows of the embedding."""
    if EMBEDDING not in gguf.tensors:
        raise CheckpointError(
            f"{gguf.name} lacks the tensor {EMBEDDING!r}: is it a vocabulary only?"
        )
    shape = gguf.tensors[EMBEDDING].shape
    if len(shape) != 2:
        raise CheckpointError(
            f"{gguf.name}: tensor {EMBEDDING!r} has shape {shape}; expected (V, D)"
        )
    return shape[0]
