"""What becomes of a server's text: `Utf8`, `Told`, `Key` and the functions below."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence

from tinyllm.agent import protocol
from tinyllm.agent.backend import OnText
from tinyllm.agent.protocol import MAX_THOUGHT
from tinyllm.decode.stop import StopStrings
from tinyllm.errors import InvalidTokenError, ServerError

THOUGHT_LIMIT = 16 * MAX_THOUGHT  # characters, where a server has no ceiling
SHOWN = 300  # characters of what a server says
PART = 8  # characters of a key that betray it
_BLANK = re.compile(r"\A[\s\ufeff]+")  # with byte order marks
_FENCE = re.compile(r"\A`{3,}\w*")


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


class Key:
    """What keeps an API key, and each longer part of it, out of what a server says.

    A key of fewer than PART characters is no secret: servers that need none are given
    words such as "EMPTY", which may stand in any honest reply.
    """

    def __init__(self, key: str) -> None:
        escaped = json.dumps(key)[1:-1]
        twice = json.dumps(escaped)[1:-1]  # in JSON within JSON
        forms = (key, escaped, twice, repr(key)[1:-1])
        self._forms = forms if len(key) >= PART else ()
        self._parts = {
            form[i : i + PART]
            for form in self._forms
            for i in range(len(form) - PART + 1)
        }

    def watch(self) -> StopStrings:
        """What holds back the text of a reply while it may become the key."""
        return StopStrings(self._forms)

    def passed(self, watch: StopStrings, piece: str) -> str:
        """The text that may pass; ServerError as soon as the key has come."""
        text = watch.push(piece)
        if watch.stopped:
            raise ServerError("the server sent the API key back: do not trust it")
        return text

    def masked(self, said: object) -> str:
        """What was said, as one line of at most SHOWN characters, without the key."""
        said = said if isinstance(said, str) else json.dumps(said, default=vars)
        plain = said[: 2 * SHOWN]
        starts = (i for i in range(len(plain)) if plain[i : i + PART] in self._parts)
        secret = {i + j for i in starts for j in range(PART)}
        told = "".join("*" if i in secret else c for i, c in enumerate(plain))
        return protocol.one_line(told)[:SHOWN]


def spoken_call(text: str) -> str:
    """The text without what may stand before a call: blank lines, label, a fence."""
    text = unlabelled(text, protocol.CALL)
    return unlabelled(_FENCE.sub("", text), protocol.CALL)


def unlabelled(text: str, label: str) -> str:
    """The text without blank lines and without the label it may begin with.

    "" while it is too short to tell.
    """
    text, name = _BLANK.sub("", text), label.strip()
    rest = "" if name.startswith(text) else text.removeprefix(name)
    return _BLANK.sub("", rest)


def paired(text: str) -> str:
    """The text with its surrogate pairs joined, without a half one at its end."""
    decoder = codecs.getincrementaldecoder("utf-16-le")(errors="replace")
    return decoder.decode(text.encode("utf-16-le", "surrogatepass"))
