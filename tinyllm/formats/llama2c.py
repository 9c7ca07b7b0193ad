"""Weights in one file: `read` and `write` llama2.c's `.bin`, version 0.

Seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len; all
little endian), then float32 numbers without names. A negative vocabulary size says that
the head is a matrix of its own. Source: karpathy/llama2.c, run.c, memory_map_weights.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm.atomic_file import atomic_file
from tinyllm.errors import CheckpointError
from tinyllm.formats.blocks import Array, Bytes
from tinyllm.formats.tensor import Stored, mapped, pickled, to_interleaved
from tinyllm.model.config import Config, weight_shapes
from tinyllm.model.layers import rope_tables
from tinyllm.model.transformer import check_weights

HEADER = struct.Struct("<7i")
PICKLED = (b"PK", b"\x80\x02")  # how torch's files begin, new and old
MAGIC = 0x616B3432  # "ak42" begins versions 1 and 2
EMBEDDING, NORM = "model.embed_tokens.weight", "model.norm.weight"
TABLES, HEAD = "rotation tables", "lm_head.weight"
# The kinds of a layer's weights in the order of the file, each for all layers in turn.
IN_LAYERS = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.down_proj",
    "mlp.up_proj",
)
# What the format has no place for, so that every reader takes it as given.
GIVEN = {"rope_theta": 10000.0, "norm_eps": 1e-5}


def read(path: str | os.PathLike[str]) -> tuple[Config, dict[str, Stored]]:
    """Return the config and the weights, still in the file, of a llama2.c model.

    Raises CheckpointError for another version, for sizes that make no sense and for a
    file that is not as long as they imply.
    """
    return parse(mapped(path), str(path))


def parse(data: Bytes, name: str) -> tuple[Config, dict[str, Stored]]:
    """Return config and weights in the bytes of a file that errors call `name`."""
    if bytes(data[:2]) in PICKLED:
        raise pickled(name)
    if bytes(data[:4]) == b"GGUF":
        raise CheckpointError(f"{name} is a GGUF file: rename it to end in .gguf")
    try:
        config = _read_header(data)
        spans = _spans(config)
        _check_length(len(data), max(end for _, end in spans.values()))
    except CheckpointError as error:
        raise CheckpointError(f"{name} as a llama2.c file: {error}") from None
    shapes, turned = weight_shapes(config), _turned(config)
    return config, {
        key: Stored(data[begin:end], "F32", shapes[key], turned.get(_kind(key), 0))
        for key, (begin, end) in spans.items()
        if key != TABLES
    }


def write(
    path: str | os.PathLike[str],
    config: Config,
    weights: Mapping[str, NDArray[Any] | Stored],
) -> None:
    """Write a model as a llama2.c file, whole or not at all.

    Raises CheckpointError for weights that do not fit the config, and for what the
    format cannot say: a rope_theta, a norm_eps or a head_dim other than its own.
    """
    check_weights(config, weights)
    for name, value in {**GIVEN, "head_dim": config.dim / config.n_heads}.items():
        if getattr(config, name) != value:
            raise CheckpointError(
                f"{name} is {getattr(config, name)}; a llama2.c file means {value:g} "
                "and cannot say otherwise: save it as safetensors"
            )
    turned = _turned(config)
    with atomic_file(path) as file:
        file.write(_header(config))
        for name in _names(config):
            if name == TABLES:
                file.write(_tables(config))
                continue
            array = np.asarray(weights[name], "<f4", order="C")
            if heads := turned.get(_kind(name)):
                array = to_interleaved(array, heads)
            file.write(array.data)


def _read_header(data: Bytes) -> Config:
    if len(data) < HEADER.size:
        raise CheckpointError(
            f"{len(data)} bytes are too few for the header of {HEADER.size}"
        )
    sizes = HEADER.unpack(data[: HEADER.size].tobytes())
    if sizes[0] == MAGIC:
        raise CheckpointError(
            f"version {sizes[1]} of the format (ak42); only version 0 is read: export "
            "the model again with --version 0"
        )
    dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, n_ctx = sizes
    if n_heads < 1 or dim % n_heads:
        raise CheckpointError(
            f"n_heads is {n_heads}, which does not divide dim ({dim})"
        )
    return Config(
        dim=dim,
        hidden_dim=hidden_dim,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=dim // n_heads,
        vocab_size=abs(vocab_size),
        n_ctx=n_ctx,
        tied_embeddings=vocab_size > 0,
        **GIVEN,
    )


def _header(config: Config) -> bytes:
    sign = 1 if config.tied_embeddings else -1
    return HEADER.pack(
        config.dim,
        config.hidden_dim,
        config.n_layers,
        config.n_heads,
        config.n_kv_heads,
        sign * config.vocab_size,
        config.n_ctx,
    )


def _names(config: Config) -> Iterator[str]:
    """Give what follows the header, in order."""
    yield EMBEDDING
    for kind in IN_LAYERS:
        for i in range(config.n_layers):
            yield f"model.layers.{i}.{kind}.weight"
    yield NORM
    yield TABLES
    if not config.tied_embeddings:
        yield HEAD


def _kind(name: str) -> str:
    """Return what a weight is, whatever its layer: "self_attn.q_proj"."""
    return name.removeprefix("model.layers.").partition(".")[2].removesuffix(".weight")


def _turned(config: Config) -> dict[str, int]:
    """Return the kinds that rotation turns, with their numbers of heads."""
    return {"self_attn.q_proj": config.n_heads, "self_attn.k_proj": config.n_kv_heads}


def _spans(config: Config) -> dict[str, tuple[int, int]]:
    """Return the first byte and the end of everything, in the order of the file."""
    shapes = {**weight_shapes(config), TABLES: (config.n_ctx, config.head_dim)}
    names = list(_names(config))
    sizes = (4 * math.prod(shapes[name]) for name in names)
    ends = accumulate(sizes, initial=HEADER.size)
    return dict(zip(names, pairwise(ends), strict=True))


def _check_length(size: int, expected: int) -> None:
    if size < expected:
        raise CheckpointError(f"truncated: {size} bytes; its sizes imply {expected}")
    if size > expected:
        raise CheckpointError(
            f"surplus of {size - expected} bytes: {size}; its sizes imply {expected}"
        )


def _tables(config: Config) -> bytes:
    """Return the cosines, then the sines, (n_ctx, E/2) each: only old readers look."""
    cos, sin = rope_tables(config)  # (n_ctx, 2, E/2) each
    halves: list[Array] = [cos[:, 1], sin[:, 1]]
    return np.stack(halves).astype("<f4").tobytes()
