"""Hugging Face's `tokenizer.json` of a byte-level BPE: read and write it.

`save(tokenizer, path)` and `load(path)`. What a file asks for and this package does not
do is an error that names it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tinyllm.atomic_file import atomic_file
from tinyllm.errors import TokenizationError
from tinyllm.formats.bytelevel import byte_characters, from_vocabulary
from tinyllm.formats.content import content
from tinyllm.text.bpe import BPE

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


def save(tokenizer: BPE, path: str | os.PathLike[str]) -> None:
    """Write `tokenizer` as a tokenizer.json that the library `tokenizers` opens.

    The file appears whole or not at all.
    """
    text = json.dumps(_document(tokenizer), ensure_ascii=False, indent=1) + "\n"
    with atomic_file(path) as file:
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
        "post_processor": _template(tokenizer) if tokenizer.add_bos else None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {t: i for i, t in enumerate(text)},
            "merges": [[text[a], text[b]] for a, b, _ in tokenizer.merges],
        },
    }


def _template(tokenizer: BPE) -> dict[str, Any]:
    """Return what makes other tools put bos before a text."""
    names = {i: name for name, i in tokenizer.specials.items()}
    bos = names[tokenizer.bos_id]
    first = {"SpecialToken": {"id": bos, "type_id": 0}}
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    ids = {"id": bos, "ids": [tokenizer.bos_id], "tokens": [bos]}
    return {
        "type": "TemplateProcessing",
        "single": [first, a],
        "pair": [first, a, b],
        "special_tokens": {bos: ids},
    }


def load(
    path: str | os.PathLike[str],
    *,
    bos_id: int | None = None,
    eos_ids: Collection[int] | None = None,
    vocab_size: int | None = None,
) -> BPE:
    """Return the tokenizer in the file `path`.

    The file does not say which ids are bos and eos: without `bos_id` and `eos_ids` they
    are `<|bos|>` and `<|eos|>`. A `vocab_size` above the file's adds ids that stand for
    nothing. Raises TokenizationError naming what is missing, damaged or not supported.
    """
    file = Path(path)
    try:
        document = json.loads(content(file).decode("utf-8"))
        return _build(document, bos_id, eos_ids, vocab_size)
    except TokenizationError as error:
        raise TokenizationError(f"{file}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TokenizationError(f"{file} is not JSON: {error}") from error
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise TokenizationError(
            f"{file} is not a tokenizer.json of a byte-level BPE: {error!r} is missing "
            "or of the wrong kind"
        ) from error


def _build(
    document: dict[str, Any],
    bos_id: int | None,
    eos_ids: Collection[int] | None,
    vocab_size: int | None,
) -> BPE:
    _refuse_unsupported(document)
    model, specials = document["model"], _specials(document)
    vocab: dict[str, int] = model["vocab"]
    size = _size(vocab, specials)
    if vocab_size is not None and vocab_size < size:
        raise TokenizationError(
            f"there are {size} tokens, the model has {vocab_size}: they do not belong "
            "together"
        )
    for i in range(size, vocab_size or size):  # rows that only round up a matrix
        specials[f"<|unused_{i}|>"] = i
    texts = {i: text for text, i in (vocab | specials).items()}
    if bos_id is None:
        bos_id = _named(specials, "<|bos|>", "bos_id")
    if eos_ids is None:
        eos_ids = {_named(specials, "<|eos|>", "eos_ids")}
    return from_vocabulary(
        [texts[i] for i in range(len(texts))],
        _merges(model["merges"]),
        specials,
        bos_id=bos_id,
        eos_ids=eos_ids,
        add_bos=_adds_bos(document, bos_id),
        pre_tokenizer=_kind(document),
    )


def _specials(document: dict[str, Any]) -> dict[str, int]:
    for token in document["added_tokens"]:
        if not token.get("special", True):
            raise TokenizationError(
                f"the added token {token['content']!r:.80} is found in any text, "
                "although it is not special: not supported"
            )
    return {token["content"]: token["id"] for token in document["added_tokens"]}


def _named(specials: dict[str, int], name: str, option: str) -> int:
    if name in specials:
        return specials[name]
    raise TokenizationError(
        f"there is no special token {name}: give {option}= (config.json says it under "
        f"{option[:3]}_token_id)"
    )


def _adds_bos(document: dict[str, Any], bos_id: int) -> bool:
    """Return whether the template puts bos before a text; ByteLevel only moves offsets.

    Raises TokenizationError for anything else that is put before or after a text.
    """
    top = document.get("post_processor") or {"type": "ByteLevel"}
    adds = False
    for step in top["processors"] if top["type"] == "Sequence" else [top]:
        if step["type"] == "ByteLevel":
            continue
        pieces = step["single"] if step["type"] == "TemplateProcessing" else []
        *first, last = [next(iter(piece.items())) for piece in pieces] or [("", None)]
        special = step.get("special_tokens", {})
        ids = [special.get(token["id"], {}).get("ids") for _, token in first]
        if last[0] != "Sequence" or ids not in ([], [[bos_id]]):
            raise TokenizationError(
                f"post_processor {step!r:.200}: only one that puts bos (id {bos_id}) "
                "before a text is supported"
            )
        adds = adds or bool(ids)
    return adds


def _merges(listed: Any) -> list[tuple[str, str]]:
    """Return the pairs of texts to merge; files write them "a b" or ["a", "b"]."""
    if not isinstance(listed, list):
        raise TokenizationError(f"model.merges must be a list, not {listed!r:.50}")
    pairs = []
    for i, entry in enumerate(listed):
        parts = entry.split(" ") if isinstance(entry, str) else entry
        if not isinstance(parts, list) or [type(p) for p in parts] != [str, str]:
            raise TokenizationError(
                f"model.merges[{i}] is {entry!r:.80}: not two tokens"
            )
        pairs.append((parts[0], parts[1]))
    return pairs


def _size(vocab: dict[str, int], specials: dict[str, int]) -> int:
    """Return how many ids there are; TokenizationError unless they count up from 0."""
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
    for key in ("truncation", "padding"):
        if document.get(key) is not None:
            raise TokenizationError(f"{key} changes how many ids there are: remove it")
    decoder = document.get("decoder") or BYTE_LEVEL
    if decoder["type"] != "ByteLevel":
        raise TokenizationError(f"decoder {decoder!r:.80}: only ByteLevel is supported")
    for key, harmless in HARMLESS.items():
        if model.get(key, harmless[0]) not in harmless:
            raise TokenizationError(f"model.{key} is {model[key]!r:.80}: not supported")


def _kind(document: dict[str, Any]) -> str:
    """Return the pre-tokenizer: SmolLM2's sets digits apart, GPT-2's does not."""
    top = document.get("pre_tokenizer") or {"type": None}
    steps = top["pretokenizers"] if top["type"] == "Sequence" else [top]
    names = [step["type"] for step in steps]
    plain = not steps[-1].get("add_prefix_space") and steps[-1].get("use_regex", True)
    if plain and names == ["ByteLevel"]:
        return "gpt-2"
    if plain and names == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
        return "smollm"
    raise TokenizationError(
        f"pre-tokenizer {steps!r:.200}: only GPT-2's and SmolLM2's are known"
    )
