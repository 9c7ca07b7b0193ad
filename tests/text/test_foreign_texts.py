"""Texts that other tokenizers were tested with: ours must lose none of them."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

import tinyllm
from tinyllm.formats import gguf
from tinyllm.formats.gguf_vocabulary import tokenizer_of
from tinyllm.text.stream import TextStream

DATA = os.environ.get("TINYLLM_DATA", "")
SEPARATOR = "\n__ggml_vocab_test__\n"
KINDS = ["llama-spm", "gpt-2"]

pytestmark = pytest.mark.skipif(
    not (Path(DATA) / "gpt-2.inp").is_file(),
    reason="TINYLLM_DATA names no folder with gpt-2.inp",
)


def texts(kind: str = "gpt-2") -> list[str]:
    """The 47 texts of llama.cpp's vocabulary tests: spaces, scripts, emoji, digits."""
    whole = (Path(DATA) / f"{kind}.inp").read_bytes().decode()
    return whole.split(SEPARATOR)


def expected_ids(kind: str) -> list[list[int]]:
    """The ids that each model's own tokenizer gave: a line for each text."""
    lines = (Path(DATA) / f"{kind}.out").read_text("utf-8").split("\n")
    return [[int(i) for i in line.split()] for line in lines][: len(texts(kind))]


@cache
def tokenizer_for(kind: str):
    if kind == "embedded":
        return tinyllm.load().tokenizer
    path = Path(DATA) / f"{kind}.gguf"
    return tokenizer_of(gguf.read(path).metadata, str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_every_text_gives_the_ids_that_its_own_tokenizer_gives(kind):
    expected = expected_ids(kind)
    assert len(texts(kind)) == len(expected) == 47
    for text, ids in zip(texts(kind), expected, strict=True):
        assert tokenizer_for(kind).encode(text) == ids, text


@pytest.mark.parametrize("kind", ["embedded", *KINDS])
def test_every_text_comes_back_whole(kind):
    tokenizer = tokenizer_for(kind)
    assert len(texts()) == 47
    for text in texts():
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["embedded", *KINDS])
def test_every_text_comes_back_whole_from_a_stream(kind):
    tokenizer = tokenizer_for(kind)
    for text in texts():
        stream = TextStream(tokenizer, at_start=True)
        pieces = [stream.push(i) for i in tokenizer.encode(text)]
        assert "".join(pieces) + stream.flush() == text
        assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text
