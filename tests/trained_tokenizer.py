"""The embedded model's tokenizer, learned once for all tests that need it."""

from __future__ import annotations

from functools import cache

from tinyllm.text.bpe import BPE
from tinyllm.train.corpus import learn_tokenizer


@cache
def tokenizer() -> BPE:
    return learn_tokenizer(0)
