"""Clean up a server's reply: drop labels and fences, keep one line, redact the API key.

Public: `Utf8`, `ThoughtLine`, `strip_call`, `strip_label`, `join_surrogates`,
`hide_key`, `show`.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence

from tinyllm.agent import protocol
from tinyllm.agent.backend import OnText
from tinyllm.agent.protocol import MAX_THOUGHT
from tinyllm.errors import InvalidTokenError

THOUGHT_LIMIT = 16 * MAX_THOUGHT  # characters, for servers that ignore max_tokens
SHOWN = 300  # characters of a server's message in an error
PART = 8  # characters of a key that are worth hiding
_BLANK = re.compile(r"\A[\s\ufeff]+")  # byte order marks count as blanks
_FENCE = re.compile(r"\A`{3,}\w*")


class Utf8:
    """A tokenizer whose ids are bytes of UTF-8: a transcript is its text, exactly."""

    vocab_size = 256
    bos_id = 0
    add_bos = dummy_prefix = False
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text; a lone surrogate becomes "?"."""
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these bytes; InvalidTokenError for any other id."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the byte of an id; InvalidTokenError if it is not a byte."""
        if not 0 <= token_id < self.vocab_size:
            raise InvalidTokenError(f"a token id is a byte here, not {token_id!r}")
        return bytes([token_id])


class ThoughtLine:
    """The first line of a reply that is not blank, handed on in pieces as it comes."""

    def __init__(self, room: int, on_text: OnText) -> None:
        self.text, self._room, self._on_text = "", room, on_text

    def update(self, so_far: str) -> bool:
        """Return whether the line is complete; hand on what is new of it.

        It also ends at `room` bytes, in whole characters, and at THOUGHT_LIMIT.
        """
        body = strip_label(so_far[:THOUGHT_LIMIT], protocol.THOUGHT)
        line, line_break, _ = body.partition("\n")
        line = protocol.one_line(line)
        cut = line.encode("utf-8")[: self._room].decode("utf-8", "ignore").rstrip()
        new, self.text = cut[len(self.text) :], cut
        self._on_text(new)
        return bool(line_break) or cut != line or len(so_far) > THOUGHT_LIMIT


def strip_call(text: str) -> str:
    """Return the text without the blank lines, label and fence before a call."""
    text = strip_label(text, protocol.CALL)
    return strip_label(_FENCE.sub("", text), protocol.CALL)


def strip_label(text: str, label: str) -> str:
    """Return the text without the blank lines and the label it may begin with.

    While the text is too short to tell, the result is "".
    """
    text, name = _BLANK.sub("", text), label.strip()
    rest = "" if name.startswith(text) else text.removeprefix(name)
    return _BLANK.sub("", rest)


def join_surrogates(text: str) -> str:
    """Return the text with its surrogate pairs joined, without half a pair at its end.

    A server may cut a character in two; any other half becomes U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-16-le")(errors="replace")
    return decoder.decode(text.encode("utf-16-le", "surrogatepass"))


def hide_key(text: str, key: str, more: bool = False) -> str:
    """Return the text with asterisks in place of the key.

    If more text may come, an end that may become the key is left out.

    >>> hide_key("I see sk-12345678 and sk-12", "sk-12345678", more=True)
    'I see *********** and '
    """
    text = text.replace(key, "*" * len(key))
    ends = (n for n in range(len(key) if more else 0) if text.endswith(key[:n]))
    return text[: len(text) - max(ends, default=0)]


def show(said: object, key: str) -> str:
    """Return what a server said, in one line of at most SHOWN characters.

    Each part of the key of PART characters or more becomes asterisks.
    """
    text = said if isinstance(said, str) else json.dumps(said)
    text = text[: 2 * SHOWN]
    starts = [i for i in range(len(text) - PART + 1) if text[i : i + PART] in key]
    secret = {i + j for i in starts for j in range(PART)}
    hidden = "".join("*" if i in secret else c for i, c in enumerate(text))
    return protocol.one_line(hidden)[:SHOWN]
