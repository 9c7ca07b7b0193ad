"""Open a model, whatever its file is: `open_model` gives a `Model` and a tokenizer.

By its ending: a folder in Hugging Face's layout, a GGUF file, or a llama2.c .bin with a
tokenizer beside it. Every weight is turned into float32 once.
"""

from __future__ import annotations

import os
from pathlib import Path

from tinyllm.errors import CheckpointError, ModelNotFoundError, UsageError
from tinyllm.formats import gguf, gguf_llama, gguf_vocabulary, llama2c, tokenizer_bin
from tinyllm.formats.hf_folder import load_folder
from tinyllm.model.config import Config
from tinyllm.model.transformer import Model
from tinyllm.text.bpe import BPE
from tinyllm.text.sentencepiece import SentencePiece

Opened = tuple[Model, BPE | SentencePiece]


def open_model(
    path: str | os.PathLike[str],
    exact: bool = True,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Opened:
    """Return the model and the tokenizer in a folder, a .gguf or a .bin file.

    `tokenizer` is the file of a .bin model's tokenizer, by default tokenizer.bin or
    tokV.bin beside it, V ids in all. Raises ModelNotFoundError, CheckpointError,
    TokenizationError, or UsageError for a tokenizer that is not asked for.
    """
    file = Path(path)
    ending = file.suffix.lower()
    if ending == ".bin" and not file.is_dir():
        return _open_bin(file, exact, tokenizer)
    if tokenizer is not None:
        raise UsageError(
            f"{file} has its tokenizer with it: tokenizer= is for llama2.c's .bin files"
        )
    if ending == ".gguf" and not file.is_dir():
        return _open_gguf(file, exact)
    if file.is_dir():
        return load_folder(file, exact)
    raise ModelNotFoundError(
        f"{file} is not a model: give the folder of config.json, a .gguf or .bin file"
    )


def _open_gguf(file: Path, exact: bool) -> Opened:
    found = gguf.read(file)
    config = gguf_llama.config_of(found)
    tokenizer = gguf_vocabulary.tokenizer_of(found.metadata, str(file))
    _check_sizes(file, tokenizer.vocab_size, config)
    return Model(config, gguf_llama.weights_of(found, config), exact), tokenizer


def _open_bin(
    file: Path, exact: bool, tokenizer: str | os.PathLike[str] | None
) -> Opened:
    config, weights = llama2c.read(file)
    path = _tokenizer_beside(file, config) if tokenizer is None else Path(tokenizer)
    if path.suffix.lower() != ".bin":
        raise UsageError(f"{path}: the tokenizer of a .bin model is a .bin file too")
    spm = tokenizer_bin.load(path, config.vocab_size)
    return Model(config, weights, exact), spm


def _tokenizer_beside(file: Path, config: Config) -> Path:
    names = [f"tok{config.vocab_size}.bin", "tokenizer.bin"]
    for name in names:
        if (file.parent / name).is_file():
            return file.parent / name
    raise ModelNotFoundError(
        f"{file} has no tokenizer with it: put {names[0]} or {names[1]} beside it, or "
        "name its tokenizer: --tokenizer FILE on the command line, tokenizer= in Python"
    )


def _check_sizes(file: Path, n_ids: int, config: Config) -> None:
    if n_ids != config.vocab_size:
        raise CheckpointError(
            f"{file}: the tokenizer has {n_ids} ids, the model {config.vocab_size}: "
            "they do not belong together"
        )
