"""The forward pass of a Llama: `Model`, token ids in, logits out.

Every size is in `Config`, every weight in a plain dict under Hugging Face's names.

Before this: `cache`. Next: `trace`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tinyllm.errors import (
    CheckpointError,
    ContextFullError,
    InvalidTokenError,
    PromptTooShortError,
    UsageError,
    check_int,
    is_int,
)
from tinyllm.model.cache import KVCache
from tinyllm.model.config import Config, weight_shapes
from tinyllm.model.layers import (
    Array,
    Dense,
    Weight,
    attend_blocks,
    attend_rows,
    attention,
    linear,
    rms_norm,
    rope,
    rope_tables,
    swiglu,
)


class Numbers(Protocol):
    """An array, or a tensor in a file, which becomes an array when numpy asks."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the sizes, without making the array."""

    def __array__(self, dtype: Any = None, /) -> NDArray[Any]:
        """Return the numbers."""


Weights = Mapping[str, Numbers]
HEAD = "lm_head.weight"
NO_TRANSCRIPT = (str, bytes, bytearray, set, frozenset, dict)  # not lists of ids


@dataclass(frozen=True)
class Layer:
    """The weights of one layer; q, k, v and gate, up are stacked to save products."""

    attention_norm: Array  # (D,)
    qkv: Weight  # ((H + 2K) E, D)
    out: Weight  # (D, H E)
    mlp_norm: Array  # (D,)
    gate_up: Weight  # (2F, D)
    down: Weight  # (D, F)


class Model:
    """A Llama that turns token ids into logits, with or without a cache.

    With `exact`, a row's result is the same bits whatever was forwarded with it;
    without, long inputs are faster and agree to about 1e-4. Weights become arrays one
    after the other, so a file is never in memory twice. Raises CheckpointError for
    weights that do not fit the config.
    """

    def __init__(self, config: Config, weights: Weights, exact: bool = True) -> None:
        check_weights(config, weights)
        self.config = config
        self.exact = exact
        self._eps = config.norm_eps
        self._n_q = config.n_heads
        self._n_turned = config.n_heads + config.n_kv_heads
        self._n_stacked = config.n_heads + 2 * config.n_kv_heads
        self._scale = np.ones((self._n_turned, 1, 1), np.float32)
        self._scale[: self._n_q] = config.head_dim**-0.5
        self.cos, self.sin = rope_tables(config)
        self.embedding = _float32(weights["model.embed_tokens.weight"])
        self.layers = [
            _layer(weights, f"model.layers.{i}.", exact) for i in range(config.n_layers)
        ]
        self.norm = _float32(weights["model.norm.weight"])
        head = self.embedding
        if HEAD in weights:  # also where the config calls it tied, as transformers does
            stored = _float32(weights[HEAD])
            head = head if np.array_equal(stored, head) else stored
        self.head: Weight = Dense(head, exact)

    def forward(self, token_ids: Sequence[int], cache: KVCache | None = None) -> Array:
        """Return logits (T, V) after each of the T ids; see `hidden`."""
        return self.logits(self.hidden(token_ids, cache))

    def logits(self, hidden: Array) -> Array:
        """Return a score for every token of the vocabulary: (T, D) to (T, V)."""
        if len(hidden) == 1:
            return linear(hidden[0], self.head)[None]
        return linear(hidden, self.head)

    def hidden(self, token_ids: Sequence[int], cache: KVCache | None = None) -> Array:
        """Return the normed state (T, D) at each of the T ids, which follow the cache.

        The cache's length moves once, at the end. Raises InvalidTokenError,
        PromptTooShortError for no ids, ContextFullError and CacheError for a cache of
        another model, all before any writing.
        """
        cache = KVCache(self.config) if cache is None else cache
        start = cache.length
        ids = self.check(token_ids, start)
        cache.claim(self)
        x = self.embedding[ids if len(ids) > 1 else ids[0]]  # (T, D), or (D,) for one
        cos, sin = self.rotation(start, len(ids))
        for i, layer in enumerate(self.layers):
            x = x + self._attend(x, i, layer, cos, sin, cache)
            h = rms_norm(x, layer.mlp_norm, self._eps)
            x = x + linear(swiglu(linear(h, layer.gate_up)), layer.down)
        x = rms_norm(x, self.norm, self._eps)
        cache.length = start + len(ids)
        return x.reshape(len(ids), -1)  # (T, D)

    def rotation(self, start: int, n: int) -> tuple[Array, Array]:
        """Return cos and sin of n positions from `start`: (H + K, T, 2, E/2) each.

        Those of the H query heads carry the scale of attention, E**-0.5, as well. One
        position comes without the axis T.
        """
        if n == 1:
            return self.cos[start] * self._scale, self.sin[start] * self._scale
        rows, scale = slice(start, start + n), self._scale[:, None]
        return self.cos[rows] * scale, self.sin[rows] * scale

    def check(self, token_ids: Sequence[int], start: int = 0) -> list[int]:
        """Return the ids as a list, fit to be forwarded from position `start`.

        Raises InvalidTokenError, PromptTooShortError or ContextFullError.
        """
        ids = check_ids(token_ids, self.config.vocab_size)
        if start + len(ids) > self.config.n_ctx:
            raise ContextFullError(
                f"{start} positions are cached, and {len(ids)} more exceed the context "
                f"limit of {self.config.n_ctx}: shorten the text or rewind"
            )
        return ids

    def shorten(self, n_ctx: int) -> None:
        """Limit the context to n_ctx positions; UsageError for more than it has."""
        check_int("n_ctx", n_ctx, least=1)
        if n_ctx > self.config.n_ctx:
            raise UsageError(
                f"n_ctx is {n_ctx}, but this model was made for {self.config.n_ctx} "
                f"positions: give {self.config.n_ctx} or fewer"
            )
        self.config = replace(self.config, n_ctx=int(n_ctx))

    def _attend(
        self,
        x: Array,
        index: int,
        layer: Layer,
        cos: Array,
        sin: Array,
        cache: KVCache,
    ) -> Array:
        """Return what the attention of one layer adds to x (T, D)."""
        n_q, n_turned = self._n_q, self._n_turned
        qkv = linear(rms_norm(x, layer.attention_norm, self._eps), layer.qkv)
        heads = qkv.reshape(*x.shape[:-1], self._n_stacked, -1)  # (T, H + 2K, E)
        if x.ndim == 2:
            heads = heads.swapaxes(0, 1)  # (H + 2K, T, E)
        qk = rope(heads[:n_turned], cos, sin)  # (H + K, T, E)
        k, v = cache.append(index, qk[n_q:], heads[n_turned:])
        return linear(self._read(qk[:n_q], k, v), layer.out)

    def _read(self, q: Array, k: Array, v: Array) -> Array:
        if q.ndim == 2:
            return attention(q, k, v)
        return attend_rows(q, k, v) if self.exact else attend_blocks(q, k, v)


def check_ids(token_ids: Sequence[int], vocab_size: int) -> list[int]:
    """Return the ids as a list of ints; InvalidTokenError, or PromptTooShortError."""
    try:
        if isinstance(token_ids, NO_TRANSCRIPT):
            raise TypeError
        ids = list(token_ids)
    except TypeError:
        raise InvalidTokenError(
            f"token ids come as a list of whole numbers, not as {token_ids!r:.40}"
        ) from None
    if not ids:
        raise PromptTooShortError("no token ids were given: at least one is needed")
    for i in ids:
        if not is_int(i):
            raise InvalidTokenError(f"a token id must be a whole number, not {i!r}")
        if not 0 <= i < vocab_size:
            raise InvalidTokenError(
                f"token id {i} is outside the vocabulary of {vocab_size} "
                f"(0 to {vocab_size - 1})"
            )
    return list(map(int, ids))


def check_weights(config: Config, weights: Weights) -> None:
    """Raise CheckpointError for a weight that is missing, unknown or misshapen."""
    expected = weight_shapes(config)
    if HEAD in weights:
        expected |= {HEAD: (config.vocab_size, config.dim)}
    for name, shape in expected.items():
        if name not in weights:
            raise CheckpointError(f"weight {name} is missing; expected shape {shape}")
        if weights[name].shape != shape:
            found = weights[name].shape
            raise CheckpointError(f"weight {name} has shape {found}, not {shape}")
    for name in weights.keys() - expected.keys():
        if not name.endswith("rotary_emb.inv_freq"):  # a constant some files store
            raise CheckpointError(f"weight {name} is not part of a plain Llama")


def _float32(numbers: Numbers) -> Array:
    return np.array(numbers, dtype=np.float32, order="C")  # a copy: training goes on


def _layer(weights: Weights, prefix: str, exact: bool) -> Layer:
    def stack(*names: str) -> Dense:
        """Return some matrices of the layer as one, above each other."""
        parts = [weights[f"{prefix}{name}_proj.weight"] for name in names]
        rows = [0, *accumulate(part.shape[0] for part in parts)]
        whole = np.empty((rows[-1], parts[0].shape[1]), np.float32)
        for part, (first, last) in zip(parts, pairwise(rows), strict=True):
            whole[first:last] = part
        return Dense(whole, exact)

    return Layer(
        attention_norm=_float32(weights[prefix + "input_layernorm.weight"]),
        qkv=stack("self_attn.q", "self_attn.k", "self_attn.v"),
        out=stack("self_attn.o"),
        mlp_norm=_float32(weights[prefix + "post_attention_layernorm.weight"]),
        gate_up=stack("mlp.gate", "mlp.up"),
        down=stack("mlp.down"),
    )
