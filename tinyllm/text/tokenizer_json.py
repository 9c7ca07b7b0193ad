"""Hugging Face's `tokenizer.json` of a byte-level BPE: read and write it.

`save(tokenizer, path)` and `load(path)`. In these files each byte is written as one
printable character, by the table that GPT-2's `bytes_to_unicode` defines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tinyllm.errors import TokenizationError
from tinyllm.text.bpe import BPE

MAX_BYTES = 64 * 2**20


def byte_characters() -> list[str]:
    """The printable character that stands for each of the 256 bytes, in order.

    Printable Latin-1 stands for itself; the rest are moved up to U+0100 and on.
    Source: openai/gpt-2, encoder.py, bytes_to_unicode.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = iter(range(256, 512))
    return [chr(b if b in printable else next(moved)) for b in range(256)]


def save(tokenizer: BPE, path: Path) -> None:
    """Write `tokenizer` as a tokenizer.json that the library `tokenizers` opens."""
    table = byte_characters()
    text = ["".join(table[b] for b in token) for token in tokenizer.tokens]
    for name, token_id in tokenizer.specials.items():
        text[token_id] = name
    added = [
        {"id": i, "content": name, "special": True, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for name, i in tokenizer.specials.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    digits = {"type": "Digits", "individual_digits": True}
    steps = [digits] if tokenizer.pre_tokenizer == "smollm" else []
    document = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*steps, byte_level | {"use_regex": True}],
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {t: i for i, t in enumerate(text)},
            "merges": [[text[a], text[b]] for a, b, _ in tokenizer.merges],
        },
    }
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")


def load(path: Path) -> BPE:
    """The tokenizer in the file `path`.

    Raises TokenizationError naming what is missing, damaged or not supported.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TokenizationError(f"{path} is larger than {MAX_BYTES} bytes")
        document = json.loads(path.read_text("utf-8"))
        return _build(document)
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizationError(f"{path} cannot be read as JSON: {error}") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise TokenizationError(
            f"{path} is no tokenizer.json of a byte-level BPE: {error!r} is missing "
            "or of the wrong kind"
        ) from error


def _build(document: dict[str, Any]) -> BPE:
    model = document["model"]
    if model.get("type", "BPE") != "BPE":
        raise TokenizationError(f"model type {model['type']!r}: only BPE is supported")
    byte_of = {c: b for b, c in enumerate(byte_characters())}
    specials = {t["content"]: t["id"] for t in document["added_tokens"]}
    size = max(*model["vocab"].values(), *specials.values()) + 1
    if size > 2 * (len(model["vocab"]) + len(specials)):
        raise TokenizationError(
            f"ids up to {size - 1} for {len(model['vocab'])} tokens"
        )
    tokens = [b""] * size
    for text, token_id in model["vocab"].items():
        if text not in specials:
            tokens[token_id] = bytes(byte_of[c] for c in text)
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    vocab = model["vocab"]
    triples = [(vocab[a], vocab[b], vocab[a + b]) for a, b in merges]
    return BPE(tokens, triples, specials, pre_tokenizer=_kind(document))


def _kind(document: dict[str, Any]) -> str:
    """The name of the pre-tokenizer: SmolLM2's sets digits apart, GPT-2's does not."""
    top = document["pre_tokenizer"]
    steps = top["pretokenizers"] if top["type"] == "Sequence" else [top]
    names = [step["type"] for step in steps]
    if names == ["ByteLevel"]:
        return "gpt-2"
    if names == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
        return "smollm"
    raise TokenizationError(
        f"pre-tokenizer {names}: only GPT-2's and SmolLM2's are known"
    )
