"""Where a text begins and how it comes: `after_bos`, and `TextStream` for its end.

One character may be spread over several tokens (an emoji takes up to four), so
`TextStream` waits with the bytes of an unfinished one until the rest arrives.

Before: text.sentencepiece. Next: model.config.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from tinyllm.engine import Tokenizer


def after_bos(tokenizer: Tokenizer, token_ids: Iterable[int]) -> list[int]:
    """Return the ids for a model: after bos if it expects one, or has no other id."""
    ids = list(token_ids)
    return [tokenizer.bos_id, *ids] if tokenizer.add_bos or not ids else ids


class TextStream:
    """Text from token ids, one at a time: `push` each id, `flush` at the end.

    `at_start`: the first id begins a text, so that a space which `encode` would have
    put there is dropped. In the middle of a text nothing is.
    """

    def __init__(self, tokenizer: Tokenizer, at_start: bool = False) -> None:
        self._tokenizer = tokenizer
        self._drop = at_start and tokenizer.dummy_prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Return the characters that an id completes; "" while one is unfinished."""
        data = self._tokenizer.token_bytes(token_id)
        if self._drop and data:
            data, self._drop = data.removeprefix(b" "), False
        return self._decoder.decode(data)

    @property
    def unfinished(self) -> bool:
        """Return whether bytes are held back that do not make a character yet."""
        return bool(self._decoder.getstate()[0])

    def flush(self) -> str:
        """Return what is left at the end: U+FFFD if a character was never finished."""
        return self._decoder.decode(b"", final=True)
