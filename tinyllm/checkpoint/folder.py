"""A model as a folder: config.json, model.safetensors and tokenizer.json.

The same three files that Hugging Face's tools read and write for a Llama.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tinyllm.checkpoint import safetensors
from tinyllm.errors import CheckpointError, ModelNotFoundError
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model, check_weights
from tinyllm.text.bpe import BPE
from tinyllm.whole import whole_file

LARGEST_CONFIG = 2**20  # bytes; a real one has a thousand
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


def load_folder(path: str | os.PathLike[str], exact: bool = True) -> tuple[Model, BPE]:
    """Return the model and the tokenizer that a folder holds.

    Raises ModelNotFoundError where a file is absent, CheckpointError where one is
    damaged or does not fit the others.
    """
    folder = Path(path)
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        if not (folder / name).is_file():
            raise ModelNotFoundError(f"{folder} is not a model folder: no {name} in it")
    config = _read_config(folder / CONFIG)
    tokenizer = BPE.load(folder / TOKENIZER)
    if tokenizer.vocab_size != config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has {tokenizer.vocab_size} ids, "
            f"the model has {config.vocab_size}: they do not belong together"
        )
    return Model(config, safetensors.read(folder / WEIGHTS), exact), tokenizer


def save_folder(
    path: str | os.PathLike[str],
    config: Config,
    weights: Mapping[str, NDArray[Any]],
    tokenizer: BPE,
    dtype: str = "F16",
) -> None:
    """Write a model folder that `load_folder` and other engines read."""
    check_weights(config, weights)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    values = config.to_hf() | {
        "bos_token_id": tokenizer.bos_id,
        "eos_token_id": min(tokenizer.eos_ids),
        "torch_dtype": {"F16": "float16", "F32": "float32"}.get(dtype, dtype),
    }
    safetensors.write(folder / WEIGHTS, weights, dtype)
    tokenizer.save(folder / TOKENIZER)
    text = json.dumps(values, indent=2) + "\n"
    with whole_file(folder / CONFIG) as file:  # last: without it a folder is no model
        file.write(text.encode())


def _read_config(path: Path) -> Config:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_CONFIG + 1)
        if len(raw) > LARGEST_CONFIG:
            raise CheckpointError(f"{path} is larger than {LARGEST_CONFIG} bytes")
        values = json.loads(raw.decode("utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    return Config.from_hf(values)
