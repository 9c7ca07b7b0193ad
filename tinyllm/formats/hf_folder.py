"""A model as a folder: config.json, model.safetensors and tokenizer.json.

The files that Hugging Face's tools read and write for a Llama; a large model comes as
several shards and an index that says which tensor is in which.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tinyllm import strict_json
from tinyllm.atomic_file import atomic_file
from tinyllm.errors import CheckpointError, ModelNotFoundError
from tinyllm.formats import safetensors, tokenizer_json
from tinyllm.formats.tensor import Stored, pickled
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model, check_weights
from tinyllm.text.bpe import BPE

LARGEST_CONFIG = 2**20  # bytes; a real one has a thousand
LARGEST_INDEX = 2**22  # bytes; a thousand layers need a quarter of it
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
GENERATION, INDEX = "generation_config.json", "model.safetensors.index.json"
PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")


def load_folder(path: str | os.PathLike[str], exact: bool = True) -> tuple[Model, BPE]:
    """Return the model and the tokenizer that a folder holds.

    Raises ModelNotFoundError where a file is absent, CheckpointError where one is
    damaged or does not fit the others, TokenizationError for such a tokenizer.
    """
    folder = Path(path)
    for name in (CONFIG, TOKENIZER):
        if not (folder / name).is_file():
            raise ModelNotFoundError(f"{folder} is not a model folder: no {name} in it")
    values = _read_object(folder / CONFIG, LARGEST_CONFIG)
    try:
        config = Config.from_hf(values)
    except CheckpointError as error:
        said = str(error).removeprefix("config.json: ")
        raise CheckpointError(f"{folder / CONFIG}: {said}") from None
    bos, eos = _ends(folder, values, config.vocab_size)
    weights = read_weights(folder)
    check_weights(config, weights)  # the sizes are real ones before anything is made
    tokenizer = tokenizer_json.load(
        folder / TOKENIZER, bos_id=bos, eos_ids=eos, vocab_size=config.vocab_size
    )
    return Model(config, weights, exact), tokenizer


def read_weights(folder: Path) -> dict[str, Stored]:
    """Return the weights in a folder by name, still in their file or shards.

    Where both are there, model.safetensors goes before the index, as in transformers.
    Raises ModelNotFoundError for neither, CheckpointError for pickled weights.
    """
    if (folder / WEIGHTS).is_file():
        return safetensors.read(folder / WEIGHTS)
    if (folder / INDEX).is_file():
        return _read_shards(folder)
    for pattern in PICKLED:
        for found in sorted(folder.glob(pattern)):
            raise pickled(str(found))
    raise ModelNotFoundError(f"{folder} is not a model folder: no {WEIGHTS} in it")


def save_folder(
    path: str | os.PathLike[str],
    config: Config,
    weights: Mapping[str, NDArray[Any] | Stored],
    tokenizer: BPE,
    dtype: str = "F16",
) -> None:
    """Write a model folder that `load_folder` and other engines read.

    `dtype` is "F16" or "F32". A model that was there is replaced. Raises
    CheckpointError, before anything is written, for what does not fit together.
    """
    check_weights(config, weights)
    if not isinstance(tokenizer, BPE) or tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"a folder holds a byte-level BPE of at most {config.vocab_size} ids, not "
            f"{type(tokenizer).__name__} of {tokenizer.vocab_size}: llama2c.write and "
            "tokenizer_bin.save are for SentencePiece"
        )
    safetensors.check_dtype(dtype)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    eos = sorted(tokenizer.eos_ids)
    values = config.to_hf() | {
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": eos[0] if len(eos) == 1 else eos,
        "torch_dtype": {"F16": "float16", "F32": "float32"}.get(dtype, dtype),
    }
    safetensors.write(folder / WEIGHTS, weights, dtype)
    for stale in (INDEX, GENERATION):
        (folder / stale).unlink(missing_ok=True)
    tokenizer_json.save(tokenizer, folder / TOKENIZER)
    text = json.dumps(values, indent=2) + "\n"
    with atomic_file(folder / CONFIG) as file:  # last: it makes the folder a model
        file.write(text.encode())


def _read_shards(folder: Path) -> dict[str, Stored]:
    """Return the tensors of all shards that the index names, each where it says."""
    index = folder / INDEX
    where = _read_object(index, LARGEST_INDEX).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise CheckpointError(f"{index}: weight_map must map tensors to shards")
    for name, shard in where.items():
        if not _is_shard(shard):
            raise CheckpointError(
                f"{index}: tensor {name!r} is in {shard!r}; expected the name of a "
                ".safetensors file in the same folder"
            )
    weights: dict[str, Stored] = {}
    for shard in sorted(set(where.values())):
        tensors = safetensors.read(folder / shard)
        for name in tensors:
            if where.get(name) != shard:
                raise CheckpointError(
                    f"{folder / shard} holds tensor {name!r}, which the index has "
                    f"{'in ' + where[name] if name in where else 'nowhere'}"
                )
        weights |= tensors
    for name, shard in where.items():
        if name not in weights:
            raise CheckpointError(
                f"{folder / shard} lacks tensor {name!r}: see {INDEX}"
            )
    return weights


def _is_shard(name: Any) -> bool:
    """Return whether a name can only mean a safetensors file beside the index."""
    return (
        isinstance(name, str)
        and name.endswith(".safetensors")
        and name.isprintable()
        and len(name.encode()) <= 255
        and not set(name) & set("/\\:")
    )


def _ends(
    folder: Path, values: Mapping[str, Any], vocab_size: int
) -> tuple[int | None, set[int] | None]:
    """Return bos and the ids that end a text; None where no file says."""
    bos = _ids(folder / CONFIG, "bos_token_id", values, vocab_size)
    if isinstance(values.get("bos_token_id"), list):
        raise CheckpointError(f"{folder / CONFIG}: bos_token_id is {bos}; expected one")
    eos = _ids(folder / CONFIG, "eos_token_id", values, vocab_size)
    if (folder / GENERATION).is_file():
        more = _read_object(folder / GENERATION, LARGEST_CONFIG)
        eos += _ids(folder / GENERATION, "eos_token_id", more, vocab_size)
    return (bos[0] if bos else None), (set(eos) if eos else None)


def _ids(path: Path, key: str, values: Mapping[str, Any], vocab_size: int) -> list[int]:
    """Return the token ids under a key: of one id, of a list, of null or of nothing."""
    value = values.get(key)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if value == [] or any(type(i) is not int or not 0 <= i < vocab_size for i in ids):
        raise CheckpointError(
            f"{path}: {key} is {value!r:.80}; expected token ids, 0 to {vocab_size - 1}"
        )
    return ids


def _read_object(path: Path, largest: int) -> dict[str, Any]:
    """Return the JSON object in a file of at most `largest` bytes."""
    try:
        with path.open("rb") as file:
            raw = file.read(largest + 1)
        if len(raw) > largest:
            raise CheckpointError(f"{path} is larger than {largest} bytes")
        values = strict_json.read(raw.decode("utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold one JSON object")
    return values
