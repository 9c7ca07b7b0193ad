"""An engine without a file, to try everything above engines on: `ToyEngine`.

A real `Model` with one layer and one attention head, whose weights come from a seed: it
has learned nothing, but whatever holds for the cache of a big model holds for its own.
Its vocabulary has a few words and the 256 bytes, so it can spell any text.

Before: numpy_engine. Next: text.vocabulary.
"""

from __future__ import annotations

import re

import numpy as np

from tinyllm.model.config import Config, weight_shapes
from tinyllm.model.layers import Array
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.text.vocabulary import Vocabulary, utf8

BOS, EOS = 0, 1
LABELS = ["TOOLS: ", "\nTASK: ", "\nTHOUGHT: ", "\nCALL: ", "\nOBSERVATION: "]
CALL = [
    '{"tool":"',
    '","args":{"',
    '":"',
    '"}}',
    "calc",
    "expression",
    "answer",
    "text",
]
STORY = [" the", " cat", " dog", " saw", " and", " ran"]


class WordTokenizer(Vocabulary):
    """An id for each of some words, and one for each byte of everything else."""

    def __init__(self, words: list[str]) -> None:
        contents = [*(bytes([i]) for i in range(256)), *map(str.encode, words)]
        # of alternatives a regular expression takes the first that fits
        longest_first = sorted(contents, key=len, reverse=True)
        self._pieces = re.compile(b"|".join(map(re.escape, longest_first)))
        self._ids = {content: i for i, content in enumerate(contents, start=2)}
        super().__init__(
            [b"", b"", *contents],
            special_ids={BOS, EOS},
            bos_id=BOS,
            eos_ids={EOS},
            add_bos=True,
            dummy_prefix=False,
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, the longest word at each place; TokenizationError.

        >>> WordTokenizer([" the"]).encode("at the")
        [99, 118, 258]
        """
        return [self._ids[piece] for piece in self._pieces.findall(utf8(text))]


def toy_weights(config: Config) -> dict[str, Array]:
    """Return weights that depend on the sizes only: norms of 1, matrices at random."""
    random = np.random.default_rng(0)
    weights: dict[str, Array] = {}
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, np.float32)
        else:  # a product with x is about as large as x, and attention is not too sharp
            matrix = random.standard_normal(shape) / np.sqrt(shape[1])
            weights[name] = matrix.astype(np.float32)
    return weights


class ToyEngine(NumpyEngine):
    """The engine of the toy: no arguments, no file, always the same weights."""

    def __init__(self, exact: bool = True) -> None:
        tokenizer = WordTokenizer([*LABELS, *CALL, *STORY])
        config = Config(
            dim=16,
            hidden_dim=32,
            n_layers=1,
            n_heads=1,
            n_kv_heads=1,
            head_dim=16,
            vocab_size=tokenizer.vocab_size,
            n_ctx=1024,  # two steps of an agent, spelled in bytes
            tied_embeddings=False,
        )
        super().__init__(Model(config, toy_weights(config), exact), tokenizer, "toy")
