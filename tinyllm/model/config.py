"""The sizes of a Llama, checked once: `Config`, and the `weight_shapes` they imply.

Files use the keys of Hugging Face's config.json for LlamaForCausalLM.

Before this: `text/stream`. Next: `layers`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinyllm.errors import CheckpointError, is_int

LARGEST_SIZE = 2**24  # no real width or vocabulary comes near
LARGEST = {"n_layers": 1000, "n_ctx": 2**20}
# What is worked out from the sizes alone, whatever the weights hold: in numbers.
LARGEST_ROTATION = 2**22  # n_ctx * E: two tables of 16 MiB
LARGEST_CACHE = 2**30  # L * K * n_ctx * E: keys of 4 GiB, and values

_HF_SIZES = {
    "dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "n_ctx": "max_position_embeddings",
}
# What a file may ask for that this forward pass does not do.
_HF_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("llama",),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "rope_scaling": (None, {"rope_type": "default"}, {"type": "default"}),
    "partial_rotary_factor": (1.0, None),
    "sliding_window": (None,),
    "quantization_config": (None,),
    "architectures": (["LlamaForCausalLM"], None),
}
# The same inside rope_parameters; "type" is the older spelling of "rope_type".
_ROPE_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "rope_type": ("default",),
    "type": ("default",),
    "partial_rotary_factor": (1.0, None),
}


@dataclass(frozen=True)
class Config:
    """The sizes and constants of one model.

    `dim` is D, `hidden_dim` F, `n_layers` L, `n_heads` H, `n_kv_heads` K, `head_dim` E,
    `vocab_size` V; `n_ctx` is the largest number of positions. Raises CheckpointError
    naming the field that makes no sense.
    """

    dim: int
    hidden_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    n_ctx: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    tied_embeddings: bool = True

    def __post_init__(self) -> None:
        for name in _HF_SIZES:
            limit = LARGEST.get(name, LARGEST_SIZE)
            _check_size(name, getattr(self, name), limit)
        for name in ("rope_theta", "norm_eps"):
            value = _constant(name, getattr(self, name))
            object.__setattr__(self, name, value)  # frozen, so past its own guard
        if not isinstance(self.tied_embeddings, bool):
            raise CheckpointError("config: tied_embeddings must be true or false")
        if self.head_dim % 2:
            raise CheckpointError(
                f"config: head_dim is {self.head_dim}; rotation needs an even number"
            )
        if self.n_heads % self.n_kv_heads:
            raise CheckpointError(
                f"config: n_heads is {self.n_heads}, which n_kv_heads "
                f"({self.n_kv_heads}) does not divide"
            )
        _check_room(self)

    def to_hf(self) -> dict[str, Any]:
        """Return the keys of a Hugging Face config.json that describes this model."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            **{key: getattr(self, name) for name, key in _HF_SIZES.items()},
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.norm_eps,
            "tie_word_embeddings": self.tied_embeddings,
        }

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> Config:
        """Return the config that a Hugging Face config.json describes.

        Raises CheckpointError naming a key that is missing, wrong or not supported.
        """
        if not isinstance(values, Mapping):
            raise CheckpointError("config.json must hold one JSON object")
        for key, supported in _HF_UNSUPPORTED.items():
            if key in values:
                _check_supported(key, values[key], supported)
        sizes = dict(values)
        if sizes.get("num_key_value_heads") is None:
            sizes["num_key_value_heads"] = values.get("num_attention_heads")
        if sizes.get("head_dim") is None:
            sizes["head_dim"] = _head_dim(values)
        missing = [key for key in _HF_SIZES.values() if sizes.get(key) is None]
        if missing:
            raise CheckpointError(f"config.json lacks {', '.join(missing)}")
        return cls(
            **{name: sizes[key] for name, key in _HF_SIZES.items()},
            rope_theta=_rope_theta(values),
            norm_eps=values.get("rms_norm_eps", 1e-6),
            tied_embeddings=values.get("tie_word_embeddings", False),
        )


def weight_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every weight, in the order of the data.

    A matrix is (out, in), so that a layer computes `W @ x`.
    """
    d, f, v = config.dim, config.hidden_dim, config.vocab_size
    q = config.n_heads * config.head_dim
    kv = config.n_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, d)}
    for i in range(config.n_layers):
        layer = f"model.layers.{i}."
        shapes[layer + "input_layernorm.weight"] = (d,)
        shapes[layer + "self_attn.q_proj.weight"] = (q, d)
        shapes[layer + "self_attn.k_proj.weight"] = (kv, d)
        shapes[layer + "self_attn.v_proj.weight"] = (kv, d)
        shapes[layer + "self_attn.o_proj.weight"] = (d, q)
        shapes[layer + "post_attention_layernorm.weight"] = (d,)
        shapes[layer + "mlp.gate_proj.weight"] = (f, d)
        shapes[layer + "mlp.up_proj.weight"] = (f, d)
        shapes[layer + "mlp.down_proj.weight"] = (d, f)
    shapes["model.norm.weight"] = (d,)
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (v, d)
    return shapes


def _check_size(name: str, value: object, limit: int) -> None:
    if not is_int(value):
        raise CheckpointError(f"config: {name} must be a whole number, not {value!r}")
    if not 1 <= value <= limit:
        raise CheckpointError(f"config: {name} is {value}; expected 1 to {limit}")


def _constant(name: str, value: object) -> float:
    if is_int(value) or isinstance(value, float):
        try:
            number = float(value)
        except OverflowError:  # a whole number that no float holds
            number = math.inf
        if 0 < number < math.inf:
            return number
    raise CheckpointError(f"config: {name} must be finite and above 0, not {value!r}")


def _check_room(config: Config) -> None:
    """Raise CheckpointError for a context that would cost more than the weights."""
    rotation = config.n_ctx * config.head_dim
    cache = rotation * config.n_layers * config.n_kv_heads
    if rotation > LARGEST_ROTATION or cache > LARGEST_CACHE:
        raise CheckpointError(
            f"config: n_ctx is {config.n_ctx}, too long a context for heads of "
            f"{config.head_dim}, {config.n_kv_heads} in each of {config.n_layers} "
            "layers: give a smaller max_position_embeddings (GGUF: context_length)"
        )


def _check_supported(key: str, value: object, supported: tuple[Any, ...]) -> None:
    if value not in supported:
        other = key in ("model_type", "architectures")
        advice = (
            ". This package runs plain Llamas only: take one of those" if other else ""
        )
        raise CheckpointError(
            f"config.json: {key} is {value!r:.80}; only {supported[0]!r} is supported"
            + advice
        )


def _head_dim(values: Mapping[str, Any]) -> int | None:
    """Return the head width that follows from the model width, as older files mean."""
    dim, heads = values.get("hidden_size"), values.get("num_attention_heads")
    if not isinstance(dim, int) or not isinstance(heads, int) or heads < 1:
        return None
    if dim % heads:
        raise CheckpointError(
            f"config.json: hidden_size {dim} is not a multiple of "
            f"num_attention_heads {heads}, and there is no head_dim"
        )
    return dim // heads


def _rope_theta(values: Mapping[str, Any]) -> Any:
    """Return rope_theta, which newer files keep inside rope_parameters."""
    parameters = values.get("rope_parameters")
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, Mapping):
        raise CheckpointError("config.json: rope_parameters must be an object")
    for key, plain in _ROPE_UNSUPPORTED.items():
        _check_supported(key, parameters.get(key, plain[0]), plain)
    inner = parameters.get("rope_theta")
    theta = values.get("rope_theta", 10000.0 if inner is None else inner)
    if inner is not None and inner != theta:
        raise CheckpointError(
            f"config.json: rope_theta is {theta!r:.40}, but {inner!r:.40} in "
            "rope_parameters: engines differ in which they take, so make them equal"
        )
    return theta
