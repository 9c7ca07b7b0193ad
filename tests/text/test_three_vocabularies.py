"""The stored table of chapter 01 is what the two foreign vocabularies really give.

The vocabularies are in TINYLLM_DATA (gpt-2.gguf, llama-spm.gguf). Outside oracles: the
libraries `tokenizers` and `sentencepiece`, built from what the files say; then our own
tokenizers. To make the table anew, say after changing a text in it:

    TINYLLM_DATA=... python -m tests.text.test_three_vocabularies
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from tinyllm.formats import gguf
from tinyllm.formats.gguf_vocabulary import tokenizer_of

STORED = Path(__file__).parents[2] / "notebooks" / "data" / "three_vocabularies.json"
DATA = Path(os.environ.get("TINYLLM_DATA", ""))
PREFIX = "tokenizer.ggml."
FILES = {"GPT-2": "gpt-2.gguf", "Llama": "llama-spm.gguf"}

pytestmark = pytest.mark.skipif(
    not all((DATA / name).is_file() for name in FILES.values()),
    reason="TINYLLM_DATA names no folder with gpt-2.gguf and llama-spm.gguf",
)


def table():
    return json.loads(STORED.read_text(encoding="utf-8"))


def metadata(name):
    """What the file of a vocabulary says about itself, by our reader."""
    return gguf.read(DATA / FILES[name]).metadata


def byte_table():
    """GPT-2's character for each byte, built the way its authors did."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def gpt_2(fields):
    """GPT-2's encoder by the library `tokenizers`: text -> ids and their bytes."""
    library = pytest.importorskip("tokenizers", reason="no oracles extra")
    vocabulary = {text: i for i, text in enumerate(fields[PREFIX + "tokens"])}
    merges = [tuple(pair.split(" ")) for pair in fields[PREFIX + "merges"]]
    tokenizer = library.Tokenizer(library.models.BPE(vocabulary, merges))
    cut = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = cut
    byte_of = byte_table()

    def encode(text):
        found = tokenizer.encode(text)
        return found.ids, [bytes(byte_of[c] for c in token) for token in found.tokens]

    return encode


def field(number, value):
    """One field of a protocol buffer: bytes, a float or a small whole number."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def varint(n):
    """A whole number in groups of seven bits, lowest first."""
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def llama(fields):
    """Llama's encoder by the library `sentencepiece`: text -> ids and their bytes."""
    library = pytest.importorskip("sentencepiece", reason="no oracles extra")
    columns = (fields[PREFIX + name] for name in ("tokens", "scores", "token_type"))
    pieces = [
        field(1, field(1, text.encode()) + field(2, float(score)) + field(3, int(kind)))
        for text, score, kind in zip(*columns, strict=True)
    ]
    # BPE with byte fallback; unk, bos, eos; a dummy prefix, and no space removed
    trainer = field(3, 2) + field(35, 1) + field(40, 0) + field(41, 1) + field(42, 2)
    normal = field(1, b"identity") + field(3, 1) + field(4, 0) + field(5, 1)
    model = b"".join(pieces) + field(2, trainer) + field(3, normal)
    processor = library.SentencePieceProcessor(model_proto=model)

    def spelled(i):
        text = processor.id_to_piece(i)
        if processor.is_byte(i):  # written <0x0A>
            return bytes([int(text[3:5], 16)])
        return text.replace("▁", " ").encode()

    def encode(text):
        ids = processor.encode(text)
        return ids, [spelled(i) for i in ids]

    return encode


def by_libraries(texts):
    """The vocabularies of the table, from the files by outside libraries."""
    return {
        name: listed(make(fields), len(fields[PREFIX + "tokens"]), texts)
        for name, make in {"GPT-2": gpt_2, "Llama": llama}.items()
        for fields in [metadata(name)]
    }


def listed(encode, size, texts):
    """One vocabulary as the table writes it."""
    found = {kind: encode(text) for kind, text in texts.items()}
    tokens = {
        kind: {
            "ids": " ".join(map(str, ids)),
            "bytes": " ".join(data.hex() for data in spelled),
        }
        for kind, (ids, spelled) in found.items()
    }
    return {"size": size, "tokens": tokens}


def test_the_table_is_what_outside_libraries_give():
    stored = table()
    assert stored["vocabularies"] == by_libraries(stored["texts"])


@pytest.mark.parametrize("name", FILES)
def test_the_table_is_what_our_own_readers_give(name):
    tokenizer = tokenizer_of(metadata(name), FILES[name])

    def encode(text):
        ids = tokenizer.encode(text)
        return ids, [tokenizer.token_bytes(i) for i in ids]

    stored = table()
    ours = listed(encode, tokenizer.vocab_size, stored["texts"])
    assert ours == stored["vocabularies"][name]


if __name__ == "__main__":
    made = table()
    made["vocabularies"] = by_libraries(made["texts"])
    text = json.dumps(made, ensure_ascii=False, indent=1) + "\n"
    STORED.write_text(text, encoding="utf-8")
