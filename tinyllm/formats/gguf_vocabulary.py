"""The tokenizer that a GGUF file describes in its keys `tokenizer.ggml.*`.

`tokenizer_of(metadata, name)` gives a `SentencePiece` (the model "llama") or a `BPE`
("gpt2"). Which token is what, `token_type` says, in the numbers of `Kind`.
Source: ggml-org/ggml, docs/gguf.md, and llama.cpp, llama-vocab.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm.errors import TokenizationError
from tinyllm.formats.bytelevel import from_vocabulary
from tinyllm.text.bpe import BPE
from tinyllm.text.sentencepiece import Kind, SentencePiece

PREFIX = "tokenizer.ggml."
SPACE = "\u2581"  # stands for a space in the pieces of a file
PRE_TOKENIZERS = ("gpt-2", "smollm")
END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
Metadata = Mapping[str, Any]


def tokenizer_of(metadata: Metadata, name: str) -> SentencePiece | BPE:
    """Return the tokenizer that `metadata` describes; `name` is the file's, for errors.

    Texts are lists of str, numbers numpy arrays. Raises TokenizationError naming the
    key that is missing, damaged or asks for what this package does not do.
    """
    try:
        model = _value(metadata, "model", str)
        if model == "llama":
            return _sentencepiece(metadata)
        if model == "gpt2":
            return _byte_level(metadata)
        raise TokenizationError(
            f"{PREFIX}model is {model!r:.60}: this package knows 'llama' and 'gpt2'"
        )
    except TokenizationError as error:
        raise TokenizationError(f"{name}: {error}") from error


def _sentencepiece(metadata: Metadata) -> SentencePiece:
    """Return a user-defined token is text if it is one character or white space only.

    Others are marks such as <|im_start|>, which no text may become.
    """
    texts = _texts(metadata, "tokens")
    bos_id, eos_ids = _begin_and_end(metadata, len(texts))
    pieces, kinds = (
        list(texts),
        _numbers(metadata, "token_type", len(texts), "iu").tolist(),
    )
    for i, kind in enumerate(kinds):
        if kind in (Kind.NORMAL, Kind.USER_DEFINED):
            pieces[i] = texts[i].replace(SPACE, " ")
        mark = kind == Kind.USER_DEFINED and len(pieces[i]) > 1 and pieces[i].strip()
        if mark or i == bos_id or i in eos_ids:
            kinds[i] = Kind.CONTROL
    return SentencePiece(
        pieces,
        _numbers(metadata, "scores", len(texts), "f").tolist(),
        kinds,
        bos_id=bos_id,
        eos_ids=eos_ids,
        add_bos=_value(metadata, "add_bos_token", bool, True),
        dummy_prefix=_value(metadata, "add_space_prefix", bool, True),
    )


def _byte_level(metadata: Metadata) -> BPE:
    """Return every token that is not normal is special, user-defined ones too."""
    texts = _texts(metadata, "tokens")
    bos_id, eos_ids = _begin_and_end(metadata, len(texts))
    kinds = _numbers(metadata, "token_type", len(texts), "iu")
    specials: dict[str, int] = {}
    for i in sorted({*np.flatnonzero(kinds != Kind.NORMAL).tolist(), bos_id, *eos_ids}):
        if specials.setdefault(texts[i], i) != i:
            raise TokenizationError(
                f"{PREFIX}tokens: {specials[texts[i]]} and {i} are both special and "
                f"{texts[i]!r:.60}"
            )
    pre_tokenizer = _value(metadata, "pre", str)
    if pre_tokenizer not in PRE_TOKENIZERS:
        raise TokenizationError(
            f"{PREFIX}pre is {pre_tokenizer!r:.60}: this package knows the "
            f"pre-tokenizers {' and '.join(map(repr, PRE_TOKENIZERS))}"
        )
    if _value(metadata, "add_space_prefix", bool, False):
        raise TokenizationError(
            f"{PREFIX}add_space_prefix is true: not supported for the model 'gpt2'"
        )
    return from_vocabulary(
        texts,
        _merges(metadata),
        specials,
        bos_id=bos_id,
        eos_ids=eos_ids,
        add_bos=_value(metadata, "add_bos_token", bool, False),
        pre_tokenizer=pre_tokenizer,
    )


def _begin_and_end(metadata: Metadata, n: int) -> tuple[int, frozenset[int]]:
    """Return bos (eos where a file has no bos) and the ids that end a text."""
    eos_id = _id(metadata, END_KEYS[0], n)
    more = {_id(metadata, k, n) for k in END_KEYS[1:] if PREFIX + k in metadata}
    has_bos = f"{PREFIX}bos_token_id" in metadata
    bos_id = _id(metadata, "bos_token_id", n) if has_bos else eos_id
    return bos_id, frozenset({eos_id} | more)


def _merges(metadata: Metadata) -> list[tuple[str, str]]:
    pairs = []
    for i, text in enumerate(_texts(metadata, "merges")):
        a, space, b = text.partition(" ")
        if not (a and space and b) or " " in b:
            raise TokenizationError(
                f"{PREFIX}merges[{i}] is {text!r:.60}: expected two tokens and a space"
            )
        pairs.append((a, b))
    return pairs


def _value(metadata: Metadata, key: str, kind: type, default: Any = None) -> Any:
    """Return the value at `tokenizer.ggml.<key>`; an error unless of this kind."""
    if (value := metadata.get(PREFIX + key, default)) is None:
        raise TokenizationError(f"{PREFIX}{key} is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TokenizationError(
            f"{PREFIX}{key} is {value!r:.60}: expected {kind.__name__}"
        )
    return value


def _id(metadata: Metadata, key: str, n: int) -> int:
    value: int = _value(metadata, key, int)
    if not 0 <= value < n:
        raise TokenizationError(
            f"{PREFIX}{key} is {value}: expected an id from 0 to {n - 1}"
        )
    return value


def _texts(metadata: Metadata, key: str) -> list[str]:
    texts: list[str] = _value(metadata, key, list)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TokenizationError(f"{PREFIX}{key}[{i}] is {text!r:.60}: no text")
    return texts


def _numbers(metadata: Metadata, key: str, n: int, kinds: str) -> NDArray[Any]:
    """Return an array of n numbers; `kinds` are numpy's letters, "f" or "iu"."""
    numbers: NDArray[Any] = _value(metadata, key, np.ndarray)
    if numbers.shape != (n,) or numbers.dtype.kind not in kinds:
        raise TokenizationError(
            f"{PREFIX}{key} is an array {numbers.shape} of {numbers.dtype}: expected "
            f"{n} {'scores' if kinds == 'f' else 'integers'}, one for each token"
        )
    return numbers
