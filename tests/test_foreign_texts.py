"""Texts that other tokenizers were tested with: ours must lose none of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tinyllm
from tinyllm.text.stream import TextStream

DATA = os.environ.get("TINYLLM_DATA", "")
SEPARATOR = "\n__ggml_vocab_test__\n"

pytestmark = pytest.mark.skipif(
    not (Path(DATA) / "gpt-2.inp").is_file(),
    reason="TINYLLM_DATA names no folder with gpt-2.inp",
)


def texts() -> list[str]:
    """The 47 texts of llama.cpp's vocabulary tests: spaces, scripts, emoji, digits."""
    whole = (Path(DATA) / "gpt-2.inp").read_bytes().decode()
    return whole.split(SEPARATOR)


def test_every_text_comes_back_whole():
    tokenizer = tinyllm.load().tokenizer
    assert len(texts()) == 47
    for text in texts():
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_every_text_comes_back_whole_from_a_stream():
    tokenizer = tinyllm.load().tokenizer
    for text in texts():
        stream = TextStream(tokenizer)
        pieces = [stream.push(i) for i in tokenizer.encode(text)]
        assert "".join(pieces) + stream.flush() == text
        assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text
