"""Cut a text into the pieces that byte-level BPE never merges across.

`split(text, "smollm")` gives the pieces in order; joined, they are the text again.
The two patterns are those of GPT-2 and of SmolLM2, which first sets every digit
apart so that numbers are spelled digit by digit.
"""

from __future__ import annotations

import regex

from tinyllm.errors import TokenizationError

# Source: openai/gpt-2, encoder.py. Contractions are case-sensitive on purpose.
_GPT2 = regex.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
_DIGIT = regex.compile(r"(\p{N})")


def split(text: str, kind: str = "smollm") -> list[str]:
    """The pieces of `text` under the pre-tokenizer `kind`: "gpt-2" or "smollm".

    >>> split("Add 17 and it's", "smollm")
    ['Add', ' ', '1', '7', ' and', ' it', "'s"]

    Raises TokenizationError for a pre-tokenizer that is not known.
    """
    if kind == "gpt-2":
        return list(_GPT2.findall(text))
    if kind == "smollm":
        return [p for part in _DIGIT.split(text) for p in _GPT2.findall(part)]
    raise TokenizationError(
        f"unknown pre-tokenizer {kind!r}: this package knows 'gpt-2' and 'smollm'"
    )
