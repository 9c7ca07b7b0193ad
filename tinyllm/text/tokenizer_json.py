"""Hugging Face's `tokenizer.json` of a byte-level BPE: read and write it.

`save(tokenizer, path)` and `load(path)`. In these files each byte is written as one
printable character, by the table that GPT-2's `bytes_to_unicode` defines. What a file
asks for and this package does not do is an error that names it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tinyllm.errors import TokenizationError
from tinyllm.text.bpe import BPE
from tinyllm.whole import whole_file

MAX_BYTES = 64 * 2**20
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
DIGITS = {"type": "Digits", "individual_digits": True}
# What a file may say of its model, beside merges, without changing any id.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "byte_fallback": (False,),
    "dropout": (None,),
    "ignore_merges": (False,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}


def byte_characters() -> list[str]:
    """The printable character that stands for each of the 256 bytes, in order.

    Printable Latin-1 stands for itself; the rest are moved up to U+0100 and on.
    Source: openai/gpt-2, encoder.py, bytes_to_unicode.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(b if b in printable else next(moved)) for b in range(256)]


def save(tokenizer: BPE, path: str | os.PathLike[str]) -> None:
    """Write `tokenizer` as a tokenizer.json that the library `tokenizers` opens.

    The file appears whole or not at all.
    """
    text = json.dumps(_document(tokenizer), ensure_ascii=False, indent=1) + "\n"
    with whole_file(path) as file:
        file.write(text.encode())


def _document(tokenizer: BPE) -> dict[str, Any]:
    table = byte_characters()
    text = ["".join(table[b] for b in token) for token in tokenizer.tokens]
    for name, token_id in tokenizer.specials.items():
        text[token_id] = name
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    }
    added = [
        {"id": i, "content": name, "special": True} | flags
        for name, i in tokenizer.specials.items()
    ]
    steps = [DIGITS] if tokenizer.pre_tokenizer == "smollm" else []
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*steps, BYTE_LEVEL | {"use_regex": True}],
        },
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {t: i for i, t in enumerate(text)},
            "merges": [[text[a], text[b]] for a, b, _ in tokenizer.merges],
        },
    }


def load(path: str | os.PathLike[str]) -> BPE:
    """The tokenizer in the file `path`.

    Raises TokenizationError naming what is missing, damaged or not supported.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MAX_BYTES:
            raise TokenizationError(f"{file} is larger than {MAX_BYTES} bytes")
        return _build(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise TokenizationError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TokenizationError(f"{file} is not JSON: {error}") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise TokenizationError(
            f"{file} is no tokenizer.json of a byte-level BPE: {error!r} is missing "
            "or of the wrong kind"
        ) from error


def _build(document: dict[str, Any]) -> BPE:
    model = document["model"]
    _refuse_unsupported(document)
    byte_of = {c: b for b, c in enumerate(byte_characters())}
    specials = {t["content"]: t["id"] for t in document["added_tokens"]}
    vocab: dict[str, int] = model["vocab"]
    tokens = [b""] * _size(vocab, specials)
    for text, token_id in vocab.items():
        if text not in specials:
            tokens[token_id] = bytes(byte_of[c] for c in text)
    merges = _merges(model["merges"], specials)
    triples = [(vocab[a], vocab[b], vocab[a + b]) for a, b in merges]
    return BPE(tokens, triples, specials, pre_tokenizer=_kind(document))


def _merges(listed: Any, specials: dict[str, int]) -> list[tuple[str, str]]:
    """The pairs of texts to merge, which files write as "a b" or as ["a", "b"].

    A special token is in none: if one were, ordinary text could spell it.
    """
    if not isinstance(listed, list):
        raise TokenizationError(f"model.merges must be a list, not {listed!r:.50}")
    pairs = []
    for i, entry in enumerate(listed):
        parts = entry.split(" ") if isinstance(entry, str) else entry
        if not isinstance(parts, list) or [type(p) for p in parts] != [str, str]:
            raise TokenizationError(f"model.merges[{i}] is {entry!r}: not two tokens")
        a, b = parts
        if not specials.keys().isdisjoint((a, b, a + b)):
            raise TokenizationError(
                f"model.merges[{i}] is {entry!r}: a special token cannot be merged"
            )
        pairs.append((a, b))
    return pairs


def _size(vocab: dict[str, int], specials: dict[str, int]) -> int:
    """How many ids there are; TokenizationError unless they count up from 0."""
    ids = list((vocab | specials).values())
    if any(type(i) is not int for i in ids) or sorted(ids) != list(range(len(ids))):
        raise TokenizationError(
            f"the {len(ids)} tokens need the ids 0 to {len(ids) - 1}, each once"
        )
    return len(ids)


def _refuse_unsupported(document: dict[str, Any]) -> None:
    """Raise TokenizationError for what would give other ids than this package does."""
    model = document["model"]
    if model.get("type", "BPE") != "BPE":
        raise TokenizationError(f"model type {model['type']!r}: only BPE is supported")
    if document.get("normalizer") is not None:
        raise TokenizationError("a normalizer changes the text: not supported")
    for key, harmless in HARMLESS.items():
        if model.get(key, harmless[0]) not in harmless:
            raise TokenizationError(f"model.{key} is {model[key]!r}: not supported")


def _kind(document: dict[str, Any]) -> str:
    """The name of the pre-tokenizer: SmolLM2's sets digits apart, GPT-2's does not."""
    top = document["pre_tokenizer"]
    steps = top["pretokenizers"] if top["type"] == "Sequence" else [top]
    names = [step["type"] for step in steps]
    plain = not steps[-1].get("add_prefix_space") and steps[-1].get("use_regex", True)
    if plain and names == ["ByteLevel"]:
        return "gpt-2"
    if plain and names == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
        return "smollm"
    raise TokenizationError(
        f"pre-tokenizer {steps}: only GPT-2's and SmolLM2's are known"
    )
