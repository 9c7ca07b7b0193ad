"""An engine without a checkpoint: words, and logits that a reader can work out.

`ToyEngine(text)` knows the words of one text; a word's logit is how often it followed
the last word there. What stands above the engine can be tried on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyllm.engine import NumpyEngine
from tinyllm.errors import TokenizationError
from tinyllm.model.cache import KVCache
from tinyllm.model.config import Config
from tinyllm.model.layers import Array
from tinyllm.model.transformer import check_fit
from tinyllm.text.vocabulary import Vocabulary, utf8

BOS, EOS = 0, 1


class WordTokenizer(Vocabulary):
    """One id a word, in the order in which the words of a text first appear."""

    def __init__(self, text: str) -> None:
        utf8(text)
        words = list(dict.fromkeys(text.split()))
        self._ids = {word: i for i, word in enumerate(words, start=2)}
        super().__init__(
            [b"", b"", *(b" " + word.encode() for word in words)],
            special_ids={BOS, EOS},
            bos_id=BOS,
            eos_ids={EOS},
            add_bos=True,
            dummy_prefix=True,
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of the words; white space of any kind only parts them.

        Raises TokenizationError for a word that the vocabulary lacks.
        """
        utf8(text)
        for word in text.split():
            if word not in self._ids:
                raise TokenizationError(
                    f"{word!r:.40} is no word of this toy, which knows "
                    f"{len(self._ids)}: {' '.join(self._ids):.60}"
                )
        return [self._ids[word] for word in text.split()]


class ToyModel:
    """A model whose state is the last id alone: its logits are a row of a table.

    table: float32 (V, V), row i holds the logits after id i.
    """

    exact = True

    def __init__(self, table: Array, n_ctx: int = 512) -> None:
        self.table = table
        width = len(table)
        self.config = Config(width, 1, 1, 1, 1, 2, width, n_ctx)

    def check(self, token_ids: Sequence[int], start: int = 0) -> list[int]:
        """Return the ids as a list, fit to be forwarded from position `start`."""
        return check_fit(token_ids, self.config, start)

    def hidden(self, token_ids: Sequence[int], cache: KVCache | None = None) -> Array:
        """Return a row for each id (T, V): 1 at its own place, 0 elsewhere."""
        cache = KVCache(self.config) if cache is None else cache
        ids = self.check(token_ids, cache.length)
        cache.claim(self, len(ids))
        cache.length += len(ids)
        return np.eye(len(self.table), dtype=np.float32)[ids]  # (T, V)

    def logits(self, hidden: Array) -> Array:
        """Return the table's rows for states (T, V)."""
        rows: Array = self.table[hidden.argmax(axis=1)]  # (T, V)
        return rows

    def forward(self, token_ids: Sequence[int], cache: KVCache | None = None) -> Array:
        """Return logits (T, V) after each id."""
        return self.logits(self.hidden(token_ids, cache))


class ToyEngine(NumpyEngine):
    """The engine of one text.

    >>> ToyEngine("the cat saw the dog and the dog ran").generate("the cat").text
    ' saw the dog and the dog and the dog and the dog and the dog'
    """

    def __init__(self, text: str, n_ctx: int = 512) -> None:
        tokenizer = WordTokenizer(text)
        ids = [BOS, *tokenizer.encode(text), EOS]
        table = np.zeros((tokenizer.vocab_size,) * 2, np.float32)  # (V, V)
        np.add.at(table, (ids[:-1], ids[1:]), 1)
        super().__init__(ToyModel(table, n_ctx), tokenizer, "toy")
