"""What becomes of a server's text: `Utf8`, `Told`, `unlabelled` and `paired`."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from tinyllm.agent import protocol
from tinyllm.agent.backend import OnText
from tinyllm.agent.protocol import THOUGHT_CEILING
from tinyllm.errors import InvalidTokenError

THOUGHT_LIMIT = 16 * THOUGHT_CEILING  # characters, where a server has no ceiling


class Utf8:
    """A tokenizer whose ids are bytes of UTF-8: a transcript is its text, exactly."""

    vocab_size = 256
    bos_id = 0
    add_bos = dummy_prefix = False
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        """The bytes of a text; a lone surrogate becomes "?"."""
        return list(text.encode("utf-8", "replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of bytes; InvalidTokenError for an id that is none."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The one byte; InvalidTokenError for an id that is none."""
        if not 0 <= token_id < self.vocab_size:
            raise InvalidTokenError(f"a token id is a byte here, not {token_id!r}")
        return bytes([token_id])


class Told:
    """A thought while it comes: its first line that says something, told in pieces."""

    def __init__(self, room: int, say: OnText) -> None:
        self.text, self._room, self._say = "", room, say

    def hear(self, so_far: str) -> bool:
        """Tell what is new of the line; whether it is at its end."""
        body = unlabelled(so_far[:THOUGHT_LIMIT], protocol.THOUGHT)
        line, line_break, _ = body.partition("\n")
        line = protocol.one_line(line)
        cut = line.encode("utf-8")[: self._room].decode("utf-8", "ignore").rstrip()
        new, self.text = cut[len(self.text) :], cut
        self._say(new)
        return bool(line_break) or cut != line or len(so_far) > THOUGHT_LIMIT


def unlabelled(text: str, label: str) -> str:
    """The text without blank lines and without the label it may begin with.

    "" while it is too short to tell.
    """
    text, name = text.lstrip(), label.strip()
    return "" if name.startswith(text) else text.removeprefix(name).lstrip()


def paired(text: str) -> str:
    """The text with its surrogate pairs joined, without a half one at its end."""
    decoder = codecs.getincrementaldecoder("utf-16-le")(errors="replace")
    return decoder.decode(text.encode("utf-16-le", "surrogatepass"))
